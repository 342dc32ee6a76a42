"""Which token ids a client can have, and what is asked of the workers for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_workers import World

from proxy.lifecycle.wanted_ids import WantedIds, wanted_ids
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.members import split_object
from proxy.wire.request import InferenceRequest, read_request

MakeWorld = Callable[..., World]
IDS, NAMES = "return_token_ids", "return_tokens_as_token_ids"
TOKENIZER = PromptTokenizer(Path(__file__).parents[1] / "tokenisation" / "models" / "qwen_like")


def request(**members: Any) -> InferenceRequest:
    return read_request(
        split_object(json.dumps({"model": "m", **members}).encode()), chat="messages" in members
    )


def ask(world: World, wanted: InferenceRequest, *asked: str) -> WantedIds | None:
    world.record.dropped = ("store", *asked)
    return wanted_ids(asked, wanted, world.service, world.record)


CHAT = {"messages": [{"role": "user", "content": "x"}]}


async def test_nobody_asks(make: MakeWorld) -> None:
    assert ask(make(), request(prompt="x")) is None


async def test_workers_of_chat_tell_none(make: MakeWorld) -> None:
    world = make()
    world.service.tokenizer = TOKENIZER
    assert ask(world, request(**CHAT), IDS, NAMES) is None
    assert world.record.dropped == ("store", IDS, NAMES)


async def test_completions_without_text(make: MakeWorld) -> None:
    world = make()
    wanted = ask(world, request(prompt="x", detokenize=False), IDS)
    assert wanted is not None
    assert (wanted.show, wanted.as_tokens, wanted.text) == (True, False, None)
    assert world.record.dropped == ("store",)


async def test_completions_with_text_need_a_tokenizer(make: MakeWorld) -> None:
    world = make()
    asked = request(prompt="x")
    assert ask(world, asked, IDS) is None
    assert "detokenize" not in asked.members
    world.service.tokenizer = TOKENIZER
    assert ask(world, request(prompt="x", echo=True), IDS) is None
    wanted = ask(world, asked, NAMES)
    assert wanted is not None
    assert (wanted.show, wanted.as_tokens) == (False, True)
    assert bytes(asked.members["detokenize"]) == b"false"


@pytest.mark.parametrize(
    ("members", "text"),
    [({}, "Hi"), ({"skip_special_tokens": True}, "Hi"), ({"skip_special_tokens": False}, "Hi<|im_end|>")],
)
async def test_special_tokens_are_left_out_as_workers_do(
    make: MakeWorld, members: dict[str, Any], text: str
) -> None:
    world = make()
    world.service.tokenizer = TOKENIZER
    wanted = ask(world, request(prompt="x", **members), IDS)
    assert wanted is not None
    assert wanted.text is not None
    assert wanted.text(TOKENIZER.encode("Hi<|im_end|>", add_special_tokens=False)) == text


async def test_other_workers_are_asked_themselves(make: MakeWorld) -> None:
    world = make(worker_dialect="nemo_rl")
    for asked in ((IDS,), (NAMES,), (IDS, NAMES)):
        wanted = ask(world, request(**CHAT), *asked)
        assert wanted is not None
        assert (wanted.show, wanted.as_tokens, wanted.text) == (True, False, None)
    assert ask(world, request(**CHAT, stream=True), IDS) is not None
    assert ask(world, request(**CHAT, stream=True), NAMES) is None


async def test_the_prompts_ids_without_a_hand_off(make: MakeWorld) -> None:
    """Workers that prefill by themselves tell none, but the client may have sent them."""
    wanted = ask(make(), request(prompt="x", detokenize=False), IDS)
    assert wanted is not None
    for prompt, ids in (([5, 6], [5, 6]), ("text", None)):
        members: dict[str, Any] = {"choices": b'[{"token_ids":[7]}]'}
        wanted.rewriter(request(prompt=prompt).members, None).answer(members)
        assert json.loads(members.get("prompt_token_ids", b"null")) == ids
