"""Token ids in whole answers and in events."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.reply_ids import GrowingText, ReplyIds
from proxy.wire.rewriting import Rewriters

TOKENIZER = PromptTokenizer(Path(__file__).parents[1] / "tokenisation" / "models" / "qwen_like")
BASE64 = b'"AQAAAAIAAAA="'  # [1, 2]


def rewriter(prompt: bytes | None = b"[1,2]", **options: Any) -> ReplyIds:
    return ReplyIds(prompt, **{"chat": True, "show": True, "as_tokens": False, "text": None, **options})


def answered(by: ReplyIds, *choices: dict[str, Any]) -> Any:
    return json.loads(Rewriters([by]).answer(json.dumps({"id": "1", "choices": choices}).encode()))


def streamed(by: ReplyIds, *events: Any) -> list[Any]:
    text = b"".join(
        b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
        for event in events
    )
    frames = Rewriters([by]).stream(text).decode().split("\n\n")
    assert frames.pop() == ""
    data = [frame.removeprefix("data: ") for frame in frames]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


def text_of(ids: list[int]) -> str:
    return "".join(f"<{each}>" for each in ids)


@pytest.mark.parametrize("prompt", [b"[1,2]", BASE64])
def test_both_are_put_into_a_chat_answer(prompt: bytes) -> None:
    answer = answered(rewriter(prompt), {"index": 0, "message": {"content": "x"}, "token_ids": [3, 4]})
    assert answer["prompt_token_ids"] == [1, 2]
    assert answer["choices"] == [{"index": 0, "message": {"content": "x"}, "token_ids": [3, 4]}]


def test_ids_are_read_out_of_log_probabilities() -> None:
    content = [{"token": "token_id:3", "logprob": -1.0}, {"token": "token_id:4", "logprob": -2.0}]
    answer = answered(rewriter(), {"index": 0, "message": {}, "logprobs": {"content": content}})
    assert (answer["prompt_token_ids"], answer["choices"][0]["token_ids"]) == ([1, 2], [3, 4])
    assert answer["choices"][0]["logprobs"]["content"] == content


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {}},
        {"message": {}, "token_ids": None},
        {"message": {}, "token_ids": "3"},
        {"message": {}, "logprobs": {"content": [{"token": "plain text"}]}},
        {"message": {}, "logprobs": {"content": [{"token": "token_id:3x"}]}},
        {"message": {}, "logprobs": {"content": [{"token": "token_id:3"}, {"token": "plain"}]}},
        {"message": {}, "token_ids": [-1]},
        {"message": {}, "logprobs": {"content": []}},
        {"message": {}, "logprobs": 5},
    ],
)
def test_without_the_answers_ids_there_are_none_of_the_prompt(choice: dict[str, Any]) -> None:
    answer = answered(rewriter(), choice)
    assert "prompt_token_ids" not in answer
    assert answer["choices"][0].get("token_ids") is None


@pytest.mark.parametrize("prompt", [None, b'"no base64!"'])
def test_without_the_prompts_ids_there_are_none_of_the_answer(prompt: bytes | None) -> None:
    answer = answered(rewriter(prompt), {"message": {}, "token_ids": [3]})
    assert "prompt_token_ids" not in answer
    assert answer["choices"][0]["token_ids"] is None


def test_a_completion_has_both_in_its_choices_too() -> None:
    answer = answered(rewriter(chat=False), {"index": 0, "text": "", "token_ids": [3]})
    assert answer["prompt_token_ids"] == [1, 2]
    assert answer["choices"] == [{"index": 0, "text": "", "token_ids": [3], "prompt_token_ids": [1, 2]}]


def test_the_text_that_the_worker_left_out() -> None:
    choice = {"index": 0, "text": "", "token_ids": [3, 4]}
    answer = answered(rewriter(chat=False, text=text_of), choice)
    assert answer["choices"][0]["text"] == "<3><4>"
    assert answer["choices"][0]["token_ids"] == [3, 4]
    names_only = answered(rewriter(chat=False, text=text_of, show=False, as_tokens=True), choice)
    assert names_only["choices"] == [{"index": 0, "text": "<3><4>", "token_ids": None}]
    # A worker that has not left it out.
    other = answered(rewriter(chat=False, text=text_of), {"text": "worker's", "token_ids": None})
    assert other["choices"] == [{"text": "worker's", "token_ids": None}]


def test_log_probabilities_of_completions_name_ids() -> None:
    names_only = rewriter(chat=False, show=False, as_tokens=True)
    logprobs = {
        "text_offset": [0, 2],
        "token_logprobs": [-0.5, -1.0],
        "tokens": [" a", "b"],
        "top_logprobs": [{" a": -0.5}, {"b": -1.0}],
    }
    (choice,) = answered(names_only, {"text": " ab", "token_ids": [3, 4], "logprobs": logprobs})["choices"]
    assert choice["token_ids"] == [3, 4]  # as the worker told them
    assert choice["logprobs"] == {
        **logprobs,
        "tokens": ["token_id:3", "token_id:4"],
        "top_logprobs": [{"token_id:3": -0.5}, {"token_id:4": -1.0}],
    }
    several = {**logprobs, "top_logprobs": [{" a": -0.5, "x": -3.0}, {"b": -1.0}]}
    (choice,) = answered(names_only, {"text": " ab", "token_ids": [3, 4], "logprobs": several})["choices"]
    assert choice["logprobs"] == {**several, "tokens": ["token_id:3", "token_id:4"]}


@pytest.mark.parametrize("logprobs", [None, 5, {}, {"tokens": ["a", "b"]}])
def test_log_probabilities_of_another_form_stay(logprobs: Any) -> None:
    names = rewriter(chat=False, show=False, as_tokens=True)
    (choice,) = answered(names, {"text": "", "token_ids": [3], "logprobs": logprobs})["choices"]
    assert choice["logprobs"] == logprobs


def test_a_chat_stream_has_the_prompts_ids_in_its_first_event() -> None:
    events = streamed(
        rewriter(BASE64),
        {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [3]}]},
        {"choices": [{"index": 0, "delta": {"content": "b"}, "token_ids": [4, 5], "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 2}},
        b"[DONE]",
    )
    assert [event.get("prompt_token_ids") for event in events[:4]] == [[1, 2], None, None, None]
    assert [event["choices"][0].get("token_ids") for event in events[:3]] == [None, [3], [4, 5]]
    assert events[3:] == [{"choices": [], "usage": {"prompt_tokens": 2}}, "[DONE]"]


def test_a_stream_of_completions_with_its_text() -> None:
    ids = TOKENIZER.encode("näive 東京 🙂!", add_special_tokens=False)
    by = rewriter(chat=False, text=TOKENIZER.decode)
    last = len(ids) - 1
    events = streamed(
        by,
        *(
            {
                "choices": [
                    {
                        "index": 0,
                        "text": "",
                        "token_ids": [each],
                        "finish_reason": "stop" if at == last else None,
                    }
                ]
            }
            for at, each in enumerate(ids)
        ),
    )
    assert "".join(event["choices"][0]["text"] for event in events) == "näive 東京 🙂!"
    assert [event["choices"][0]["token_ids"] for event in events] == [[each] for each in ids]
    assert "\ufffd" not in json.dumps(events, ensure_ascii=False)
    assert events[0]["prompt_token_ids"] == [1, 2] == events[0]["choices"][0]["prompt_token_ids"]
    assert all("prompt_token_ids" not in json.dumps(event) for event in events[1:])


def test_a_stream_without_the_prompts_ids_has_none() -> None:
    events = streamed(rewriter(None, chat=False), {"choices": [{"text": "", "token_ids": [3]}]}, b"[DONE]")
    assert events == [{"choices": [{"text": "", "token_ids": None}]}, "[DONE]"]


def test_text_of_a_worker_that_has_not_left_it_out_stays() -> None:
    (event,) = streamed(rewriter(chat=False, text=text_of), {"choices": [{"text": "x", "token_ids": None}]})
    assert event["choices"][0]["text"] == "x"


def test_what_is_no_answer_stays() -> None:
    for body in (b"[]", b'{"error": {}}', b'{"choices": 5}', b'{"choices": [1]}'):
        assert json.loads(Rewriters([rewriter()]).answer(body)) == json.loads(body)
    for event in (b": comment\n\n", b"data: {}\n\n", b'data: {"choices": 5}\n\n', b"event: x\n\n"):
        assert rewriter().event(event) is event
    assert rewriter().end() == b""


@given(st.text(max_size=40), st.lists(st.integers(1, 4), max_size=60))
def test_growing_text_is_the_text_of_all_ids(text: str, steps: list[int]) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    growing, shown, at = GrowingText(TOKENIZER.decode), "", 0
    for step in steps:
        shown += growing.add(ids[at : at + step])
        at += step
        assert text.startswith(shown)
    shown += growing.add(ids[at:], last=True)
    assert shown == TOKENIZER.decode(ids)


def test_a_character_that_is_never_complete_is_shown_at_the_end() -> None:
    ids = TOKENIZER.encode("a🙂", add_special_tokens=False)[:-1]
    growing = GrowingText(TOKENIZER.decode)
    assert growing.add(ids) == ""
    assert growing.add([], last=True) == TOKENIZER.decode(ids)
