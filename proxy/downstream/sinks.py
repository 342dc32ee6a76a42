"""Which sink takes an answer.

The time between pieces is measured in a few streams; nothing is done for each piece of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from proxy.downstream.coalesce import CoalescingSink, Gatherer, LoopMeter
from proxy.downstream.sink import RelaySink

if TYPE_CHECKING:
    from proxy.downstream.cycle import RequestCycle
    from proxy.upstream.connection import WorkerConnection

ONE_OF = 16

MakeSink = Callable[..., RelaySink]


def sink_maker(coalesce_seconds: float, observe_gap: Callable[[float], None] | None) -> MakeSink:
    """Makes the sinks of one server.

    Args:
        coalesce_seconds: how long pieces may wait for more while the loop is busy; 0 = never.
        observe_gap: told the seconds between each two pieces, as they come from the worker, of one stream of `ONE_OF`.
    """
    kind: type[RelaySink] = RelaySink
    options: dict[str, Any] = {}
    if coalesce_seconds:
        kind = CoalescingSink
        options = {"gatherer": Gatherer(coalesce_seconds, LoopMeter())}
    if observe_gap is None:
        return partial(kind, **options)
    sampling = _sampling(kind, observe_gap)
    turn = count()

    def make(cycle: RequestCycle, source: WorkerConnection, head: bytes, **more: Any) -> RelaySink:
        chosen = kind if next(turn) % ONE_OF else sampling
        return chosen(cycle, source, head, **more, **options)

    return make


def _sampling(plain: type[RelaySink], observe: Callable[[float], None]) -> type[RelaySink]:
    class SamplingSink(plain):  # type: ignore[valid-type, misc]  # a class made at start
        __slots__ = ("_latest",)
        _latest: float

        def write(self, data: bytes) -> None:
            now = perf_counter()
            if self.first_byte_at:
                observe(now - self._latest)
            self._latest = now
            super().write(data)

    return SamplingSink
