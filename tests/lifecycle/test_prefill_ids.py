"""Token ids of the proxy's own on their way through the context leg and its second tries."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from scripted_workers import HAND_OFF, World, reply

from proxy.tokenisation.frontend import FrontendTokenisation
from proxy.tokenisation.shadow import WARM_UP
from proxy.tokenisation.threads import TokenThreads
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.token_ids import base64_of_ids

MakeWorld = Callable[..., World]
TOKENIZER = PromptTokenizer(Path(__file__).parents[1] / "tokenisation" / "models" / "qwen_like")
IDS = TOKENIZER.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
BASE64 = base64_of_ids(IDS).decode().strip('"')
GENERATED = reply({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]})
REFUSAL = {
    "error": "[{'type': 'extra_forbidden', 'loc': ('body', 'prompt_token_ids_b64'), "
    "'msg': 'Extra inputs are not permitted', 'input': 'AAAA'}]"
}


def tokenising(make: MakeWorld, *, trusted: bool = True, **options: Any) -> World:
    world = make(**options)
    frontend = FrontendTokenisation(
        TOKENIZER, shadow=0.0, max_mismatch=0.0, threads=TokenThreads(1), observe=lambda _: None
    )
    for _ in range(WARM_UP if trusted else 0):
        frontend.trust.note(same=True)
    world.service.tokenisation = frontend
    return world


def sent(world: World, name: str) -> list[Any]:
    return [each.get("prompt_token_ids_b64") for each in world[name].requests]


async def test_the_ids_are_sent_to_both_workers(make: MakeWorld) -> None:
    world = tokenising(make)
    world.script(
        c0=[reply({**HAND_OFF, "prompt_token_ids": None, "prompt_token_ids_b64": BASE64})], g0=[GENERATED]
    )
    assert await world.ask() is None
    assert sent(world, "c0") == [BASE64] == sent(world, "g0")


async def test_a_worker_that_does_not_repeat_them(make: MakeWorld) -> None:
    """The generation worker must not make a prompt of its own for a KV cache that was made of these ids."""
    world = tokenising(make)
    world.script(c0=[reply({**HAND_OFF, "prompt_token_ids": None})], g0=[GENERATED])
    assert await world.ask() is None
    assert sent(world, "c0") == [BASE64] == sent(world, "g0")


async def test_a_worker_that_refuses_them_gets_text(make: MakeWorld) -> None:
    world = tokenising(make)
    world.script(c0=[reply(REFUSAL, 400), reply({**HAND_OFF, "prompt_token_ids": None})], g0=[GENERATED])
    assert await world.ask() is None
    assert sent(world, "c0") == [BASE64, None]
    assert sent(world, "g0") == [None]
    assert world.record.retries == 1


async def test_another_worker_gets_the_same_ids(make: MakeWorld) -> None:
    world = tokenising(make, context=2)
    busy = reply({"error": "busy"}, 503)
    good = reply({**HAND_OFF, "prompt_token_ids": None, "prompt_token_ids_b64": BASE64})
    world.script(c0=[busy], c1=[good], g0=[GENERATED])
    assert await world.ask() is None
    assert sent(world, "c1") == [BASE64]


async def test_a_difference_is_found(make: MakeWorld) -> None:
    world = tokenising(make, trusted=False)
    world.script(c0=[reply(HAND_OFF)], g0=[GENERATED])  # the worker's ids: 1, 2, 3
    assert await world.ask() is None
    assert sent(world, "c0") == [None]
    assert world.service.tokenisation is not None
    while not world.service.tokenisation.trust.results:
        await asyncio.sleep(0)
    assert world.service.tokenisation.trust.results == {"different": 1}
    assert world.service.tokenisation.trust.lost


async def test_models_whose_workers_tokenise_by_themselves(make: MakeWorld) -> None:
    world = tokenising(make, harmony_models=("m",))
    world.script(c0=[reply(HAND_OFF)], g0=[GENERATED])
    assert await world.ask() is None
    assert sent(world, "c0") == [None]


async def test_base64_that_is_switched_off(make: MakeWorld) -> None:
    world = tokenising(make)
    world.service.settings = msgspec.structs.replace(world.service.settings, gen_tokids_ctxbytes=False)
    world.script(c0=[reply(HAND_OFF)], g0=[GENERATED])
    assert await world.ask() is None
    assert sent(world, "c0") == [None]
