"""Which sink takes an answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from relay_world import Relay

from proxy.downstream.coalesce import CoalescingSink
from proxy.downstream.sink import RelaySink
from proxy.downstream.sinks import ONE_OF, sink_maker

FRAMES = [b"9\r\ndata: %d\n\n\r\n" % number for number in range(3)]


def cycle() -> Any:
    transport = SimpleNamespace(write=lambda data: None, is_closing=lambda: False)
    loop = SimpleNamespace(
        create_future=lambda: SimpleNamespace(done=lambda: False, set_result=lambda _: None)
    )
    protocol = SimpleNamespace(transport=transport, loop=loop, flow=SimpleNamespace(write_paused=False))
    return SimpleNamespace(protocol=protocol, finish=lambda: None)


@pytest.mark.parametrize(("seconds", "kind"), [(0.0, RelaySink), (0.01, CoalescingSink)])
def test_one_of_sixteen_is_measured(seconds: float, kind: type[RelaySink]) -> None:
    gaps: list[float] = []
    make = sink_maker(seconds, gaps.append)
    source: Any = SimpleNamespace(pause=lambda: None)
    kinds = [type(make(cycle(), source, b"head", chunked=True)) for _ in range(4 * ONE_OF)]
    assert kinds.count(kind) == 4 * (ONE_OF - 1)
    (other,) = set(kinds) - {kind}
    assert issubclass(other, kind)
    assert not hasattr(make(cycle(), source, b"", chunked=True), "__dict__")


@pytest.mark.parametrize(("seconds", "kind"), [(0.0, RelaySink), (0.01, CoalescingSink)])
def test_without_an_observer_none_is(seconds: float, kind: type[RelaySink]) -> None:
    make = sink_maker(seconds, None)
    source: Any = SimpleNamespace(pause=lambda: None)
    assert {type(make(cycle(), source, b"", chunked=True)) for _ in range(ONE_OF + 1)} == {kind}


def test_gaps_are_between_pieces() -> None:
    gaps: list[float] = []
    written: list[bytes] = []
    world = cycle()
    world.protocol.transport.write = written.append
    sink = sink_maker(0.0, gaps.append)(world, SimpleNamespace(pause=lambda: None), b"head", chunked=True)
    for frame in FRAMES:
        sink.write(frame)
    assert len(gaps) == 2
    assert all(0 <= gap < 1 for gap in gaps)
    sink.end(b"")
    assert len(gaps) == 2
    assert b"".join(written) == b"head" + b"".join(FRAMES) + b"0\r\n\r\n"


async def test_a_real_cycle_takes_it() -> None:
    relay = Relay()
    await relay.begin()
    assert type(relay.sink) is RelaySink
    relay.sink.abort()
    await relay.finish()
