"""Token ids in answers, through the whole proxy: what vLLM's clients, NeMo Gym and AReaL ask for."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from e2e_bodies import answer_text, chat, completion, events, streamed_text
from e2e_stack import Stack
from tokenizers import Tokenizer, decoders, models

from proxy.sim import expected_answers, expected_text, prompt_token_ids
from proxy.sim.answer import FIRST_WORD_ID, VOCABULARY

MakeStack = Callable[..., Stack]
ASKED = {"return_token_ids": True}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer that knows the words of the simulated workers."""
    directory = tmp_path_factory.mktemp("words")
    vocabulary = {word: FIRST_WORD_ID + place for place, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=VOCABULARY[0]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(directory / "tokenizer.json"))
    return str(directory)


def ids_of(body: dict[str, Any]) -> list[int]:
    return list(expected_answers(body)[0].token_ids)


def test_a_completion_with_the_proxys_tokenizer(make_stack: MakeStack, words: str) -> None:
    stack = make_stack(tokenizer=words)
    body = completion()
    response = stack.post({**body, **ASKED})
    answer = response.json()
    (choice,) = answer["choices"]
    assert answer["prompt_token_ids"] == prompt_token_ids(body) == choice["prompt_token_ids"]
    assert (choice["token_ids"], choice["text"]) == (ids_of(body), expected_text(body))
    assert "x-disagg-proxy-dropped" not in response.headers
    for leg in ("context", "generation"):
        assert json.loads(stack.only_request(leg).body or b"")["detokenize"] is False


def test_a_stream_of_a_completion(make_stack: MakeStack, words: str) -> None:
    stack = make_stack(tokenizer=words)
    body = completion()
    text = stack.post({**body, **ASKED, "stream": True}).text
    shown = events(text)[:-1]
    assert streamed_text(text) == expected_text(body)
    assert [each for event in shown for each in event["choices"][0]["token_ids"]] == ids_of(body)
    assert [event.get("prompt_token_ids") for event in shown] == [
        prompt_token_ids(body),
        *[None] * (len(shown) - 1),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_that_the_context_worker_finishes(
    make_stack: MakeStack, words: str, stream: bool
) -> None:
    stack = make_stack(tokenizer=words)
    body = completion(prompt="[sim:context-stop] now")
    response = stack.post({**body, **ASKED, "stream": stream})
    answer = events(response.text)[0] if stream else response.json()
    assert answer["prompt_token_ids"] == prompt_token_ids(body)
    assert answer["choices"][0]["token_ids"] == ids_of(body)
    assert (streamed_text(response.text) if stream else answer_text(answer)) == expected_text(body)


def test_ids_in_place_of_text_need_no_tokenizer(make_stack: MakeStack) -> None:
    stack = make_stack()
    body = completion(prompt=[5, 6, 7], detokenize=False)
    answer = stack.post({**body, **ASKED}).json()
    (choice,) = answer["choices"]
    assert (answer["prompt_token_ids"], choice["token_ids"], choice["text"]) == ([5, 6, 7], ids_of(body), "")


def test_names_of_tokens_as_areal_asks_for_them(make_stack: MakeStack, words: str) -> None:
    stack = make_stack(tokenizer=words)
    body = completion(prompt=[1, 2, 3])
    answer = stack.post({**body, "logprobs": 0, "return_tokens_as_token_ids": True}).json()
    (choice,) = answer["choices"]
    assert choice["logprobs"]["tokens"] == [f"token_id:{each}" for each in ids_of(body)]
    assert len(choice["logprobs"]["token_logprobs"]) == len(ids_of(body))
    assert (choice["text"], choice["token_ids"]) == (expected_text(body), None)
    assert "prompt_token_ids" not in answer


@pytest.mark.parametrize("body", [chat(), completion()])
def test_where_they_cannot_be_had_there_are_neither(make_stack: MakeStack, body: dict[str, Any]) -> None:
    stack = make_stack()
    response = stack.post({**body, **ASKED})
    assert response.headers["x-disagg-proxy-dropped"] == "return_token_ids"
    assert "prompt_token_ids" not in response.text
    assert response.json()["choices"][0].get("token_ids") is None


def test_whoever_does_not_ask_gets_none(make_stack: MakeStack, words: str) -> None:
    stack = make_stack(tokenizer=words)
    answer = stack.post({**completion(), "return_token_ids": False}).json()
    assert "prompt_token_ids" not in json.dumps(answer)
    assert answer["choices"][0]["token_ids"] is None


# NeMo-RL's workers tell ids on chat too.


@pytest.fixture
def nemo(make_stack: MakeStack) -> Stack:
    return make_stack(cluster={"profile": "nemo"}, worker_dialect="nemo_rl")


def test_a_chat_of_nemo_rls_workers(nemo: Stack) -> None:
    body = chat(logprobs=True, top_logprobs=0, return_tokens_as_token_ids=True, **ASKED)
    answer = nemo.post(body).json()
    (choice,) = answer["choices"]
    assert answer["prompt_token_ids"] == prompt_token_ids(body)
    assert choice["token_ids"] == ids_of(body)
    assert [each["token"] for each in choice["logprobs"]["content"]] == [
        f"token_id:{each}" for each in ids_of(body)
    ]
    assert choice["message"]["content"] == expected_text(body)
    for leg in ("context", "generation"):
        sent = json.loads(nemo.only_request(leg).body or b"")
        assert sent["return_token_ids"] is sent["return_tokens_as_token_ids"] is True


def test_both_are_there_for_a_client_that_asks_for_names_only(nemo: Stack) -> None:
    body = chat(logprobs=True, return_tokens_as_token_ids=True)
    answer = nemo.post(body).json()
    assert answer["prompt_token_ids"] == prompt_token_ids(body)
    assert answer["choices"][0]["token_ids"] == ids_of(body)


def test_a_stream_of_a_chat(nemo: Stack) -> None:
    body = chat(**ASKED)
    text = nemo.post({**body, "stream": True}).text
    shown = events(text)[:-1]
    assert streamed_text(text) == expected_text(body)
    assert shown[0]["prompt_token_ids"] == prompt_token_ids(body)
    assert all("prompt_token_ids" not in event for event in shown[1:])
    told = [each for event in shown for each in event["choices"][0].get("token_ids") or ()]
    assert told == ids_of(body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_the_context_worker_finishes(nemo: Stack, stream: bool) -> None:
    body = chat(**ASKED)
    body["messages"][-1]["content"] += " [sim:context-stop]"
    response = nemo.post({**body, "stream": stream})
    shown = events(response.text)[:-1] if stream else [response.json()]
    assert shown[0]["prompt_token_ids"] == prompt_token_ids(body)
    told = [each for event in shown for each in event["choices"][0].get("token_ids") or ()]
    assert told == ids_of(body)


def test_a_chat_of_nemo_rls_workers_without_asking(nemo: Stack) -> None:
    answer = nemo.post(chat(logprobs=True)).json()
    assert "prompt_token_ids" not in answer
    assert "token_ids" not in answer["choices"][0]
    assert not answer["choices"][0]["logprobs"]["content"][0]["token"].startswith("token_id:")
