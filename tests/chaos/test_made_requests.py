"""Faults of workers under the routes that make ordinary requests of what a client asks: `n`, and tokens in, tokens out.

What a client gets follows from the rows of `expectations`; only that a broken stream always ends with an error event,
and that an answer in another form than the route's is none.
"""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import pytest
from chaos_cell import PATIENCE, SECONDS, Cell
from chaos_client import ClientAnswer
from chaos_proxy import KV_SECONDS, ChaosProxy
from e2e_bodies import CHAT, chat, events
from e2e_server import Kind
from expectations import MATRIX, PLAIN_SERVER, Cut, Error, ErrorEvent, Passes, Verbatim, Works

IDS = [11, 22, 33, 44, 55]
CHOICES = 2
GENERATE = {"input_ids": IDS, "sampling_params": {"max_new_tokens": 12, "ignore_eos": True}}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "generate": ("/generate", GENERATE),
    "several": (CHAT, chat(n=CHOICES, ignore_eos=True)),
}


class Made(NamedTuple):
    """A row of the matrix, what is asked, streamed or not, and the server in front."""

    name: str
    asked: str
    stream: bool
    kind: Kind

    def __str__(self) -> str:
        return f"{self.name}-{self.asked}-{'stream' if self.stream else 'whole'}-{self.kind}"

    @property
    def plain(self) -> Cell:
        """The cell of the ordinary request."""
        return Cell(self.name, "chat", self.stream, self.kind)

    @property
    def path(self) -> str:
        return ASKED[self.asked][0]

    @property
    def body(self) -> dict[str, Any]:
        return {**ASKED[self.asked][1], "stream": self.stream}


class Seen(NamedTuple):
    """What happened; ``afterwards`` is the answer to the same request once the fault is over."""

    answer: ClientAnswer
    outcomes: Counter[str]
    cut_inside_event: int
    afterwards: ClientAnswer


async def observe(cell: Made) -> Seen:
    row, late = cell.plain.row, cell.plain.is_late
    names = ("timeout_context", "timeout_first_byte", "timeout_idle")
    deadlines = dict.fromkeys(names, SECONDS if late else PATIENCE)
    async with ChaosProxy(cell.kind, {"kv_seconds": KV_SECONDS}, **deadlines) as proxy:
        proxy.add_fault(row.leg, **row.fault)
        if row.fault["kind"] == "refuse":
            await asyncio.gather(*(worker.sync_listener() for worker in proxy.workers(row.leg)))
        answer = await proxy.ask(cell.path, cell.body, **row.headers)
        await proxy.settled()
        outcomes: Counter[str] = Counter()
        for labels, count in await proxy.metric("requests_total"):
            if count and labels["route"] == cell.path:
                outcomes[labels["outcome"]] += count
        cuts = sum(count for _, count in await proxy.metric("cut_inside_event_total"))
        proxy.clear_faults()
        await asyncio.gather(*(worker.sync_listener() for worker in proxy.cluster.workers))
        for instance in proxy.service.registry.instances:
            instance.health.forgive()
        afterwards = await proxy.ask(cell.path, cell.body)
        await proxy.settled()
    return Seen(answer, outcomes, cuts, afterwards)


async def observe_all(cells: list[Made]) -> dict[Made, Seen | BaseException]:
    limit = asyncio.Semaphore(12)

    async def one(cell: Made) -> Seen:
        async with limit:
            return await observe(cell)

    return dict(zip(cells, await asyncio.gather(*map(one, cells), return_exceptions=True), strict=True))


def cells(names, kinds):
    return [
        Made(n, asked, stream, k) for n in names for asked in ASKED for stream in (False, True) for k in kinds
    ]


OTHERS = [name for name in MATRIX if name not in PLAIN_SERVER]


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(cells(PLAIN_SERVER, ("own", "uvicorn")), id="common"),
        pytest.param(cells(OTHERS, ("own",)), id="others", marks=pytest.mark.long),
    ],
)
def test_faults(chaos, some):
    failures = []
    for cell, seen in chaos.call(observe_all(some), 300).items():
        try:
            if isinstance(seen, BaseException):
                raise seen
            check(cell, seen)
        except Exception as error:
            failures.append(f"{cell}: {error!r}")
    assert not failures, "\n".join(failures)


def check(cell, seen):
    answer, expected = seen.answer, cell.plain.expected
    assert answer.complete, "the message has no end"
    assert answer.headers["x-request-id"]
    assert seen.cut_inside_event == 0
    assert seen.outcomes.total() == 1
    check_works(cell, seen.afterwards)
    if isinstance(expected, Works):
        check_works(cell, answer)
        assert seen.outcomes["ok"] == 1
    elif isinstance(expected, Passes) and expected.status != 200:
        assert (answer.status, answer.body) == (expected.status, expected.body.encode())
    elif isinstance(expected, Error):
        assert answer.status == expected.status, answer.body
        assert answer.json()["error"]["code"] in expected.codes
        assert answer.headers["x-disagg-proxy-error"].startswith(expected.source)
    elif isinstance(expected, ErrorEvent | Cut):
        code = expected.code if isinstance(expected, ErrorEvent) else "worker_disconnected"
        # A merged stream begins with the first event only.
        shown = events(answer.text) if answer.status == 200 else [answer.json()]
        assert answer.status in (200, 504 if code == "idle_timeout" else 502)
        assert shown[-1]["error"]["code"] == code
        assert "[DONE]" not in shown
        assert seen.outcomes["error"] == 1
    elif isinstance(expected, Verbatim):
        assert answer.status == 200
        assert "data: [DONE]\n\n" in answer.text
    else:
        assert answer.status == 502, answer.body
        assert answer.json()["error"]["code"] == "bad_worker_response"
        assert seen.outcomes["error"] == 1


def check_works(cell, answer):
    assert answer.status == 200, answer.body
    assert answer.complete
    assert "disaggregated_params" not in answer.text
    if cell.stream:
        *shown, end = events(answer.text)
        assert end == "[DONE]"
    else:
        shown = [answer.json()]
    if cell.asked == "generate":
        assert len(shown[-1]["output_ids"]) == 12
        assert shown[-1]["meta_info"]["finish_reason"]["type"] == "length"
    else:
        ends = [c["index"] for event in shown for c in event["choices"] if c.get("finish_reason")]
        assert sorted(ends) == list(range(CHOICES))
