"""Clients that leave at random moments, by the thousand: nothing of them stays behind."""

import asyncio
import random

import pytest
from chaos_client import ChaosClient
from e2e_bodies import CHAT, COMPLETIONS, chat, completion
from program import eventually
from soak_stack import SoakStack

AT_ONCE = 50
LONGEST_STAY = 0.3  # seconds: from the request's arrival into the middle of the stream
MOST_GROWTH = 5 << 20
KV_SECONDS = 2
# A prompt takes about a millisecond to prefill and a token 5 ms to decode: each phase is met often.
SIM = (
    "--prefill-tokens-per-second", "20000", "--decode-ms", "5", "--kv-seconds", str(KV_SECONDS), "--record", "0"
)  # fmt: skip


async def visit(port: int, rng: random.Random) -> None:
    """Ask for something and leave, mostly before it has come."""
    client = await ChaosClient(port).open()
    path, make = rng.choice([(CHAT, chat), (COMPLETIONS, completion)])
    client.send(path, make(stream=rng.random() < 0.6, max_tokens=60, ignore_eos=True))
    try:
        async with asyncio.timeout(rng.uniform(0, LONGEST_STAY)):
            await client.answer()
    except TimeoutError:
        pass
    if rng.random() < 0.5:
        client.reset()
    else:
        client.writer.close()


async def visits(port: int, count: int, seed: int) -> None:
    rng = random.Random(seed)
    limit = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with limit:
            await visit(port, rng)

    await asyncio.gather(*(one() for _ in range(count)))


@pytest.mark.parametrize(
    ("warm_up", "count"),
    [(600, 1000), pytest.param(2000, 10_000, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_disconnects(processes, warm_up, count):
    stack = SoakStack(processes, *SIM, timeout_context=20, timeout_first_byte=20, timeout_idle=20)
    base = stack.program.open_sockets()
    asyncio.run(visits(stack.port, warm_up, 1))
    stack.wait_idle()
    memory = stack.program.memory()
    asyncio.run(visits(stack.port, count, 2))
    stack.wait_idle()
    grown = stack.program.memory() - memory
    assert grown < MOST_GROWTH, f"{grown / 2**20:.1f} MiB"
    # Idle connections to the workers are closed after 4 s.
    eventually(lambda: stack.program.open_sockets() <= base, 15, "the end of the sockets")
    eventually(lambda: stack.kv()["held"] == 0, KV_SECONDS + 5, "an empty registry")
    outcomes = stack.outcomes()
    assert outcomes.keys() <= {"ok", "client_closed"}, outcomes
    # Whoever left before its request had been read was never counted.
    assert sum(outcomes.values()) <= warm_up + count
    assert outcomes["client_closed"] > count / 4, outcomes
    assert stack.errors() == []
    figures = f"memory {grown / 2**20:+.2f} MiB, hand-offs {stack.kv()}, orphans {stack.orphans()}"
    print(f"outcomes {outcomes}, {figures}")  # noqa: T201
