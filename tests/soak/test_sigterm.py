"""SIGTERM while many streams run: all of them finish, and nobody who knocks during the grace is turned away."""

import asyncio

import pytest
from chaos_client import ChaosClient, ask
from e2e_bodies import CHAT, chat, streamed_text
from soak_stack import SoakStack

from proxy.sim import expected_text

STREAMS = 200
GRACE = 1.5
BODY = chat(stream=True, max_tokens=60, ignore_eos=True)  # 3 s
SHORT = chat(stream=True)


async def stream(port: int) -> str:
    answer = await ask(port, CHAT, BODY)
    assert answer.status == 200
    assert answer.complete
    return streamed_text(answer.text)


async def scenario(stack: SoakStack) -> None:
    # Connections that exist before the signal and are used after it.
    idle = [await ChaosClient(stack.port).open() for _ in range(20)]
    for client in idle:
        client.send(CHAT, SHORT)
        assert (await client.answer()).complete
        client.next()
    streams = [asyncio.create_task(stream(stack.port)) for _ in range(STREAMS)]
    while await asyncio.to_thread(stack.proxy.metric, "worker_in_flight", role="generation") < STREAMS:
        await asyncio.sleep(0.05)
    stack.program.terminate()
    await asyncio.to_thread(stack.program.wait_for, "draining")
    assert (await asyncio.to_thread(stack.proxy.get, "/health/ready")).status_code == 503
    # During the grace: new connections, and those that were idle; each is told to close.
    late = [ask(stack.port, CHAT, SHORT) for _ in range(20)]
    for client in idle:
        client.send(CHAT, SHORT)
    for answer in await asyncio.gather(*late, *(client.answer() for client in idle)):
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        assert streamed_text(answer.text) == expected_text(SHORT)
    for client in idle:
        assert await client.is_closed()
        await client.close()
    assert not any(task.done() for task in streams), "the streams were to be longer than this"
    assert set(await asyncio.gather(*streams)) == {expected_text(BODY)}


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm(processes, workers):
    sim = ("--decode-ms", "50", "--record", "0")
    stack = SoakStack(processes, *sim, workers=workers, drain_grace=GRACE, drain_timeout=30)
    asyncio.run(scenario(stack))
    assert stack.program.wait(15) == 0
    assert stack.errors() == []
