"""/tokenize and /detokenize, with a tokenizer and without."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_stack import Stack

from proxy.sim import prompt_token_ids

TOKENISATION = Path(__file__).parents[1] / "tokenisation"
sys.path.insert(0, str(TOKENISATION))
from tokenisation_cases import CASES  # noqa: E402

MakeStack = Callable[..., Stack]
MODEL = TOKENISATION / "models" / "qwen_like"
GOLDEN: dict[str, list[int]] = json.loads((MODEL / "golden.json").read_text())
USER = {"role": "user", "content": "Hi"}


@pytest.fixture
def own(make_stack: MakeStack) -> Stack:
    return make_stack(tokenizer=str(MODEL), worker_version="new")


def tokenize(stack: Stack, body: Any) -> Any:
    response = stack.post(body, "/tokenize")
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_ids_of_a_prompt(own: Stack, name: str) -> None:
    answer = tokenize(own, {"model": "sim", **CASES[name]})
    assert answer == {
        "count": len(GOLDEN[name]),
        "max_model_len": 32768,
        "tokens": GOLDEN[name],
        "token_strs": None,
    }
    assert own.requests("context") == []


def test_strings_of_tokens_and_the_way_back(own: Stack) -> None:
    answer = tokenize(own, {"messages": [USER], "return_token_strs": True})
    assert answer["token_strs"][:1] == ["<|im_start|>"]
    assert len(answer["token_strs"]) == answer["count"]
    back = own.post({"model": "sim", "tokens": answer["tokens"]}, "/detokenize")
    assert back.json() == {"prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"}
    assert own.post({"tokens": []}, "/detokenize").json() == {"prompt": ""}


def test_special_tokens_of_texts(make_stack: MakeStack) -> None:
    stack = make_stack(tokenizer=str(MODEL.parent / "llama_like"))
    with_begin = tokenize(stack, {"prompt": "Hi"})
    without = tokenize(stack, {"prompt": "Hi", "add_special_tokens": False})
    assert with_begin["tokens"][1:] == without["tokens"]
    assert with_begin["max_model_len"] is None
    chat = tokenize(stack, {"messages": [USER]})
    assert tokenize(stack, {"messages": [USER], "add_special_tokens": True})["tokens"][1:] == chat["tokens"]


def test_a_prompt_that_goes_on_from_given_ids(own: Stack) -> None:
    messages = [USER, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "On"}]
    plain = tokenize(own, {"messages": messages})["tokens"]
    spliced = tokenize(own, {"messages": messages, "required_prefix_token_ids": [5, 6, 7]})["tokens"]
    rest = own.post({"tokens": spliced[3:]}, "/detokenize").json()["prompt"]
    assert spliced[:3] == [5, 6, 7]
    assert rest == "<|im_end|>\n<|im_start|>user\nOn<|im_end|>\n<|im_start|>assistant\n"
    assert plain[-len(spliced) + 3 :] == spliced[3:]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/tokenize", [], "not a JSON object"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"messages": None}, "prompt"),
        ("/tokenize", {"messages": 5}, "form that cannot be rendered"),
        ("/tokenize", {"messages": [{"role": "martian"}]}, "unknown role martian"),
        ("/tokenize", {"messages": [USER], "chat_template": "x"}, "chat_template"),
        ("/tokenize", {"messages": [USER], "chat_template_kwargs": {"x": 1}}, "does not read"),
        ("/tokenize", {"messages": [USER], "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"messages": [USER], "required_prefix_token_ids": [1]}, "required_prefix_token_ids"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "ids of tokens"),
        ("/detokenize", {"tokens": [2**40]}, "ids of tokens"),
    ],
)
def test_mistakes(own: Stack, path: str, body: Any, words: str) -> None:
    response = own.post(body, path)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]


def test_without_a_tokenizer_workers_tokenise_texts(make_stack: MakeStack) -> None:
    stack = make_stack()
    body = {"model": "sim", "prompt": "Hello, 東京"}
    ids = prompt_token_ids(body)
    assert tokenize(stack, body) == {
        "count": len(ids),
        "max_model_len": None,
        "tokens": ids,
        "token_strs": None,
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"messages": [USER]}),
        ("/tokenize", {"prompt": "x", "add_special_tokens": False}),
        ("/tokenize", {"prompt": "x", "return_token_strs": True}),
        ("/detokenize", {"tokens": [1]}),
    ],
)
def test_without_a_tokenizer_the_answer_says_what_to_configure(
    make_stack: MakeStack, path: str, body: Any
) -> None:
    response = make_stack().post(body, path)
    assert response.status_code == 501
    assert response.json()["error"]["code"] == "no_tokenizer"
    assert "proxy.tokenizer must be configured" in response.json()["error"]["message"]


def test_mistakes_without_a_tokenizer(make_stack: MakeStack) -> None:
    for body in ([], {}, {"prompt": 5}):
        assert make_stack().post(body, "/tokenize").status_code == 400


def test_workers_that_offer_nothing(make_stack: MakeStack) -> None:
    stack = make_stack()
    for worker in stack.cluster.workers:
        worker.add_fault(kind="status", status=404, route="any")
    response = stack.post({"prompt": "x"}, "/tokenize")
    assert response.status_code == 501
    assert "/_internal/tokenize" in response.json()["error"]["message"]
