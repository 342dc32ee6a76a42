"""A context worker that dies while it holds KV for a generation worker that is not yet ready for it."""

import asyncio

import pytest
from chaos_client import ask
from e2e_bodies import CHAT, chat
from e2e_processes import Processes
from program import eventually

SPEED = ("--decode-ms", "20", "--record", "0")


@pytest.fixture
def processes(run_program, write_config):
    return Processes(run_program, write_config)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("retries", [1, 0])
def test_its_hand_off_is_made_again(processes, stream, retries):
    """The generation worker answers 400, as for everything that fails in it. That is no fault of the client's."""
    contexts = [
        processes.sim("--name-prefix", f"{number}-", *SPEED, generation=0, context=1) for number in range(2)
    ]
    processes.sim("--max-batch", "1", *SPEED, context=0, generation=1)
    proxy = processes.serve(processes.config({"slow_start_seconds": 0}, max_retries=retries))
    addresses = processes.urls("context")

    def placed(*addresses):
        return [proxy.metric("placements_total", worker=address) for address in addresses]

    async def legs(number):
        (generation,) = processes.urls("generation")
        while placed(generation) != [number]:
            await asyncio.sleep(0.01)

    async def scenario():
        body = chat(stream=True, max_tokens=150, ignore_eos=True)
        long = asyncio.create_task(ask(proxy.port, CHAT, body))
        await legs(1)
        before = placed(*addresses)
        waiting = asyncio.create_task(ask(proxy.port, CHAT, {**body, "stream": stream, "max_tokens": 5}))
        await legs(2)
        (holder,) = (number for number in range(2) if placed(*addresses)[number] > before[number])
        contexts[holder].process.kill()
        return await long, await waiting

    long, waiting = asyncio.run(scenario())
    assert long.text.endswith("[DONE]\n\n")
    if retries:
        assert waiting.status == 200, waiting.text
        assert waiting.complete
    else:
        assert waiting.status == 502
        assert waiting.headers["x-disagg-proxy-error"] == "ctx;worker_disconnected"
    eventually(lambda: not proxy.metric("worker_in_flight"), what="no load")
