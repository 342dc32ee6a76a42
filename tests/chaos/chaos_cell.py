"""One cell of the matrix: a fault, a kind of request, and everything that is known afterwards."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chaos_client import ClientAnswer
from chaos_proxy import KV_SECONDS, ChaosProxy
from e2e_bodies import CHAT, chat, completion, path_of
from e2e_server import Kind
from expectations import MATRIX, Error, ErrorEvent, Outcome, Row

# Of each deadline, in cells that are to exceed one; the others have all the time that a busy machine may need.
SECONDS = 1.0
PATIENCE = 30.0


class Cell(NamedTuple):
    """Name of the row, route, streamed or not, and the server in front."""

    name: str
    route: str
    stream: bool
    kind: Kind = "own"

    def __str__(self) -> str:
        return f"{self.name}-{self.route}-{'stream' if self.stream else 'whole'}-{self.kind}"

    @property
    def row(self) -> Row:
        return MATRIX[self.name]

    @property
    def expected(self) -> Outcome:
        return self.row.stream if self.stream else self.row.whole

    @property
    def is_late(self) -> bool:
        """Whether a deadline is what ends it."""
        expected = self.expected
        if isinstance(expected, Error):
            return expected.status == 504
        return isinstance(expected, ErrorEvent) and expected.code == "idle_timeout"

    @property
    def body(self) -> dict[str, Any]:
        make = chat if self.route == "chat" else completion
        return make(stream=self.stream)


@dataclass
class Observation:
    """What happened; ``afterwards`` is the answer to the same request once the fault is over."""

    answer: ClientAnswer
    legs: tuple[int, int]
    ids: dict[str, list[int]]
    left: int
    outcomes: Counter[str]
    orphans: Counter[str]
    cut_inside_event: int
    afterwards: ClientAnswer
    addresses: list[str] = field(default_factory=list)
    expired: bool = False


async def observe(cell: Cell) -> Observation:
    """Run a cell on a proxy and workers of its own."""
    row = cell.row
    names = ("timeout_context", "timeout_first_byte", "timeout_idle")
    deadlines = dict.fromkeys(names, SECONDS if cell.is_late else PATIENCE)
    left = row.left[cell.stream]
    cluster = {"kv_seconds": KV_SECONDS if left or left is None else PATIENCE}
    async with ChaosProxy(cell.kind, cluster, **deadlines) as proxy:
        proxy.add_fault(row.leg, **row.fault)
        if row.fault["kind"] == "refuse":
            await asyncio.gather(*(worker.sync_listener() for worker in proxy.workers(row.leg)))
        path = path_of(cell.body)
        assert (path == CHAT) == (cell.route == "chat")
        client = await proxy.connect()
        client.send(path, cell.body, row.headers)
        try:
            answer = await client.answer()
            if isinstance(cell.expected, ErrorEvent):
                answer.closed = await client.is_closed(0.05)
        finally:
            await client.close()
        await proxy.settled()
        seen = Observation(
            answer=answer,
            legs=(proxy.legs("context"), proxy.legs("generation")),
            ids={leg: _ids(proxy, leg) for leg in ("context", "generation")},
            left=proxy.cluster.kv.leftover,
            outcomes=await proxy.outcomes(),
            orphans=Counter(proxy.service.orphans.outcomes),
            cut_inside_event=sum(count for _, count in await proxy.metric("cut_inside_event_total")),
            afterwards=ClientAnswer(),
            addresses=[worker.address for worker in proxy.cluster.workers],
        )
        proxy.clear_faults()
        await asyncio.gather(*(worker.sync_listener() for worker in proxy.cluster.workers))
        seen.afterwards = await _when_welcome(proxy, path, cell.body)
        await proxy.settled()
        if seen.left:
            await asyncio.sleep(proxy.cluster.kv.seconds)
        seen.expired = proxy.held == 0
    return seen


async def _when_welcome(proxy: ChaosProxy, path: str, body: Any) -> ClientAnswer:
    """Ask as often as the proxy says that it is too early: workers that were busy are spared for a while."""
    for _ in range(100):
        answer = await proxy.ask(path, body)
        if "retry-after" not in answer.headers:
            break
        await asyncio.sleep(0.05)
    return answer


def _ids(proxy: ChaosProxy, leg: str) -> list[int]:
    return [
        request.json()["disaggregated_params"]["disagg_request_id"]
        for worker in proxy.cluster.workers
        for request in worker.requests
        if request.leg == leg
    ]


async def observe_all(cells: list[Cell], at_once: int = 12) -> dict[Cell, Observation | BaseException]:
    """Run cells side by side; a cell that raised has its exception for a result."""
    limit = asyncio.Semaphore(at_once)

    async def one(cell: Cell) -> Observation:
        async with limit:
            return await observe(cell)

    results = await asyncio.gather(*(one(cell) for cell in cells), return_exceptions=True)
    return dict(zip(cells, results, strict=True))
