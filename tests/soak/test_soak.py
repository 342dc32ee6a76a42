"""Full load with five per cent of faults: every request is answered, and every answer is counted."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from chaos_client import ChaosClient, ClientAnswer
from e2e_bodies import CHAT, COMPLETIONS, chat, completion
from soak_stack import SoakStack

AT_ONCE = 64
FAULT_SHARE = 0.05
DEADLINE = 3.0
FAULTS: list[dict[str, Any]] = [
    {"kind": "reset"}, {"kind": "disconnect"}, {"kind": "reset_reused"}, {"kind": "accept_reset"}, {"kind": "garbage"},
    {"kind": "null_body"}, {"kind": "truncated_json"}, {"kind": "missing_handoff"}, {"kind": "missing_ids"},
    {"kind": "status", "status": 400}, {"kind": "status", "status": 429}, {"kind": "status", "status": 500},
    {"kind": "status", "status": 503}, {"kind": "cut", "after_events": 3}, {"kind": "cut", "inside": True},
    {"kind": "cut", "after_events": 0, "with_reset": True}, {"kind": "sse_error"}, {"kind": "not_sse"},
    {"kind": "informational"}, {"kind": "oversized_headers"}, {"kind": "chunk_extensions"}, {"kind": "trailers"},
    {"kind": "close"}, {"kind": "close_silently"}, {"kind": "unsolicited"}, {"kind": "hang", "seconds": 5},
    {"kind": "stall", "seconds": 5},
    {"kind": "slow_first_byte", "seconds": 0.2},
]  # fmt: skip


class Load:
    """Clients that ask one thing after the other; ``kinds`` counts how it went."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._end = time.monotonic() + seconds
        self.sent = 0
        self.kinds: Counter[str] = Counter()
        self.told_to_wait: Counter[str] = Counter()
        self.longest = 0.0

    async def client(self, seed: int) -> None:
        rng = random.Random(seed)
        client: ChaosClient | None = None
        while time.monotonic() < self._end:
            if client is None:
                client = await ChaosClient(self._port).open()
            path, make = rng.choice([(CHAT, chat), (COMPLETIONS, completion)])
            self.sent += 1
            client.send(path, make(stream=rng.random() < 0.5, max_tokens=rng.choice([3, 12, 30])))
            answer = await client.answer()
            kind = self._kind(answer)
            self.kinds[kind] += 1
            self.longest = max(self.longest, answer.seconds)
            if "retry-after" in answer.headers:
                self.told_to_wait[answer.headers["x-disagg-proxy-error"]] += 1
                await asyncio.sleep(float(answer.headers["retry-after"]) / 2)
            # Behind an error event the proxy closes the connection.
            if kind != "event" and client.reusable and rng.random() < 0.9:
                client.next()
            else:
                await client.close()
                client = None
        if client is not None:
            await client.close()

    @staticmethod
    def _kind(answer: ClientAnswer) -> str:
        assert answer.status, "a request without an answer"
        if not answer.complete:
            assert answer.status == 200
            return "cut"
        if answer.status != 200:
            return "error" if answer.status >= 500 else "rejected"
        if answer.headers["content-type"].startswith("text/event-stream") and not answer.text.endswith(
            "[DONE]\n\n"
        ):
            assert '"error"' in answer.text.rsplit("data: ", 1)[-1]
            return "event"
        return "ok"


async def trouble(load: Load, urls: list[str], end: float) -> int:
    """Switch faults on, each for one request of a random worker; returns how many."""
    rng = random.Random(7)
    made = 0
    async with httpx.AsyncClient(trust_env=False) as control:
        while time.monotonic() < end:
            wanted = int(load.sent * FAULT_SHARE) - made
            for _ in range(wanted):
                fault = {"count": 1, **rng.choice(FAULTS)}
                # A fault of connections may hit this one.
                with contextlib.suppress(httpx.HTTPError):
                    await control.post(f"http://{rng.choice(urls)}/sim/faults", json=fault)
                    made += 1
            await asyncio.sleep(0.05)
    return made


async def soak(stack: SoakStack, seconds: float) -> tuple[Load, int]:
    load = Load(stack.port, seconds)
    async with asyncio.TaskGroup() as group:
        made = group.create_task(trouble(load, stack.urls, time.monotonic() + seconds))
        for seed in range(AT_ONCE):
            group.create_task(load.client(seed))
    return load, made.result()


@pytest.mark.parametrize(
    "seconds", [60.0, pytest.param(600.0, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_soak(processes, seconds):
    stack = SoakStack(
        processes,
        "--record", "0", "--kv-seconds", "2", "--decode-ms", "1",
        context=2,
        generation=3,
        timeout_context=DEADLINE,
        timeout_first_byte=DEADLINE,
        timeout_idle=DEADLINE,
    )  # fmt: skip
    load, made = asyncio.run(soak(stack, seconds))
    stack.wait_idle()
    outcomes = stack.outcomes()
    kinds = load.kinds
    figures = f"metrics {outcomes}, told to wait {dict(load.told_to_wait)}, longest {load.longest:.2f} s"
    print(f"{load.sent} requests, {made} faults, {dict(kinds)}, {figures}")  # noqa: T201
    assert kinds.total() == load.sent
    assert sum(outcomes.values()) == load.sent
    assert outcomes.get("ok", 0) == kinds["ok"]
    assert outcomes.get("rejected", 0) == kinds["rejected"]
    assert outcomes.get("error", 0) == kinds["error"] + kinds["event"] + kinds["cut"]
    # Retries hide most faults; workers that say that they are busy are believed for a second.
    assert load.told_to_wait.keys() <= {"proxy;workers_busy"}
    assert load.sent - kinds["ok"] - load.told_to_wait.total() < load.sent * FAULT_SHARE
    # Both legs and a second pass, each at its deadline.
    assert load.longest < 4 * DEADLINE + 5
    assert stack.errors() == []
    assert stack.program.process.poll() is None
