"""A finished request leaves nothing that only the garbage collector could free, its prompt above all."""

import gc

import pytest
from e2e_bodies import chat

from proxy.downstream.cycle import RequestCycle
from proxy.lifecycle.passage import Passage
from proxy.lifecycle.record import RequestRecord
from proxy.middleware.body import RequestBody

OURS = (RequestCycle, RequestBody, RequestRecord, Passage)


@pytest.fixture
def kind():
    return "own"


@pytest.mark.parametrize(
    "body", [chat(), chat(stream=True), {"model": "sim"}], ids=["whole", "stream", "refused"]
)
def test_no_reference_cycles(stack, body):
    stack.post(body, "/v1/chat/completions")
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(5):
            stack.post(body, "/v1/chat/completions")
        gc.collect()
        left = [type(found).__name__ for found in gc.garbage if isinstance(found, OURS)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
