"""Who tokenises, how much waits, what is compared and what is logged."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.tokenisation.frontend import Difference, FrontendTokenisation, find_difference
from proxy.tokenisation.shadow import WARM_UP, Trust
from proxy.tokenisation.threads import TokenThreads
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.members import Members, split_object
from proxy.wire.token_ids import base64_of_ids, ids_of
from proxy.wire.versions import WorkerVersion

TOKENIZER = PromptTokenizer(Path(__file__).parent / "models" / "qwen_like")
NEW = ACCEPTED[WorkerVersion.NEW]


class World:
    def __init__(self, **options: Any) -> None:
        self.seconds: list[float] = []
        self.luck = 0.5
        given = {"shadow": 0.0, "max_mismatch": 0.01, **options}
        self.threads = TokenThreads(1)
        self.frontend = FrontendTokenisation(
            TOKENIZER, threads=self.threads, observe=self.seconds.append, chance=lambda: self.luck, **given
        )

    def trusted(self) -> "World":
        for _ in range(WARM_UP):
            self.frontend.trust.note(same=True)
        return self

    async def idle(self) -> None:
        while not self.threads.idle:
            await asyncio.sleep(0)


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.threads.close()


def chat(text: str = "Hello") -> Members:
    return split_object(json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode())


def test_ids_there_and_back() -> None:
    assert base64_of_ids([1, 2]) == b'"AQAAAAIAAAA="'  # little-endian int32
    assert ids_of(b'"AQAAAAIAAAA="') == [1, 2] == ids_of(b"[1, 2]")


async def test_a_prompt_becomes_ids(worlds: list[World]) -> None:
    worlds.append(world := World().trusted())
    prompt = await world.frontend.prompt(chat(), NEW, chat=True)
    assert prompt is not None
    assert prompt.ids is not None
    assert (
        TOKENIZER.decode(ids_of(prompt.ids)) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    text = await world.frontend.prompt(split_object(b'{"model":"m","prompt":"Hello"}'), NEW, chat=False)
    assert text is not None
    assert json.loads(text.ids or b"") == TOKENIZER.encode("Hello", add_special_tokens=True)
    assert world.frontend.outcomes == {("proxy", ""): 2}
    assert len(world.seconds) == 2


@pytest.mark.parametrize(
    ("members", "accepted", "reason"),
    [
        (chat(), ACCEPTED[WorkerVersion.OLD], "version"),
        ({**chat(), "echo": chat()["model"]}, NEW, "member"),
        (split_object(b'{"model":"m","messages":[{"role":"martian"}]}'), NEW, "template"),
        (chat("x" * (2 << 20)), NEW, "size"),
    ],
)
async def test_the_worker_tokenises(
    worlds: list[World], members: Members, accepted: Any, reason: str
) -> None:
    worlds.append(world := World().trusted())
    assert await world.frontend.prompt(members, accepted, chat=True) is None
    assert world.frontend.outcomes == {("worker", reason): 1}


async def test_an_empty_prompt_is_left_to_the_worker(worlds: list[World]) -> None:
    worlds.append(world := World().trusted())
    assert await world.frontend.prompt(split_object(b'{"prompt":""}'), NEW, chat=False) is None


async def test_a_tokenizer_that_fails(
    worlds: list[World], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds.append(world := World().trusted())
    monkeypatch.setattr(world.frontend, "_encoded", lambda prompt: 1 / 0)
    assert await world.frontend.prompt(chat(), NEW, chat=True) is None
    assert world.frontend.outcomes == {("worker", "failed"): 1}
    assert "could not be tokenised" in caplog.text


async def test_prompts_do_not_wait_for_long(worlds: list[World]) -> None:
    worlds.append(world := World().trusted())
    gate = threading.Event()
    world.threads.run(gate.wait)
    waiting = [asyncio.ensure_future(world.frontend.prompt(chat(), NEW, chat=True)) for _ in range(8)]
    await asyncio.sleep(0)
    assert await world.frontend.prompt(chat(), NEW, chat=True) is None
    assert world.frontend.outcomes["worker", "busy"] == 1
    gate.set()
    assert all(prompt is not None and prompt.ids for prompt in await asyncio.gather(*waiting))


async def test_a_client_that_leaves_costs_no_place(worlds: list[World]) -> None:
    worlds.append(world := World().trusted())
    waiting = asyncio.ensure_future(world.frontend.prompt(chat(), NEW, chat=True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await world.idle()
    assert await world.frontend.prompt(chat(), NEW, chat=True) is not None


async def test_the_first_prompts_and_a_share_of_the_others_are_compared(worlds: list[World]) -> None:
    worlds.append(world := World(shadow=0.25))
    expected = base64_of_ids(
        TOKENIZER.encode(
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
        )
    )
    for _ in range(WARM_UP):
        prompt = await world.frontend.prompt(chat(), NEW, chat=True)
        assert prompt is not None
        assert prompt.ids is None
        world.frontend.compare(prompt, expected, "r")
        await world.idle()
    assert world.frontend.trust.results == {"same": WARM_UP}
    sent = await world.frontend.prompt(chat(), NEW, chat=True)
    assert sent is not None
    assert sent.ids == expected
    world.frontend.compare(sent, b"[1]", "what was sent comes back and is not compared")
    world.luck = 0.2
    compared = await world.frontend.prompt(chat(), NEW, chat=True)
    assert compared is not None
    assert compared.ids is None
    world.frontend.compare(compared, None, "an answer without ids")
    world.frontend.compare(compared, b'"no base64 of ids"', "nor with something else")
    await world.idle()
    assert world.frontend.trust.results == {"same": WARM_UP}


async def test_differences_are_logged_without_the_prompt_and_switch_it_off(
    worlds: list[World], caplog: pytest.LogCaptureFixture
) -> None:
    worlds.append(world := World(max_mismatch=0.02))
    caplog.set_level(logging.INFO, "proxy.tokenisation")
    for number in range(3):
        prompt = await world.frontend.prompt(chat("my secret"), NEW, chat=True)
        assert prompt is not None
        world.frontend.compare(prompt, b"[600,1,2]", f"request-{number}")
        await world.idle()
    assert world.frontend.trust.lost
    assert world.frontend.trust.results == {"different": 3}
    first, last = caplog.messages
    assert first == "token ids of request request-0 differ from the worker's at 0 (of 18 and 3)"
    assert last.endswith("the workers tokenise from now on")
    assert await world.frontend.prompt(chat(), NEW, chat=True) is None
    assert world.frontend.outcomes["worker", "switched_off"] == 1


async def test_the_texts_are_shown_at_level_debug(
    worlds: list[World], caplog: pytest.LogCaptureFixture
) -> None:
    worlds.append(world := World())
    caplog.set_level(logging.DEBUG, "proxy.tokenisation")
    prompt = await world.frontend.prompt(chat("my secret"), NEW, chat=True)
    assert prompt is not None
    world.frontend.compare(prompt, base64_of_ids(TOKENIZER.encode("hers", add_special_tokens=False)), "r")
    await world.idle()
    assert "my secret" in caplog.messages[1]
    assert "'hers'" in caplog.messages[1]


def test_where_ids_differ() -> None:
    same = list(range(100))
    assert find_difference(same, same) is None
    assert find_difference([], []) is None
    other = [*same[:50], 7, *same[51:]]
    assert find_difference(same, other) == Difference(50, same[38:62], other[38:62], (100, 100))
    assert find_difference(same, same[:99]) == Difference(99, same[87:], same[87:99], (100, 99))


def test_few_comparisons_count_as_a_hundred() -> None:
    trust = Trust(0.01)
    trust.note(same=False)
    assert not trust.lost
    trust.note(same=False)
    assert trust.lost
    trust.note(same=True)
    assert trust.lost


def test_old_differences_are_forgotten() -> None:
    trust = Trust(0.01)
    for _ in range(12):
        trust.note(same=False)
        for _ in range(999):
            trust.note(same=True)
    assert not trust.lost


def test_none_may_differ() -> None:
    trust = Trust(0.0)
    trust.note(same=False)
    assert trust.lost
