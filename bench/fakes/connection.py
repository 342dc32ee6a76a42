"""One connection of a fake worker."""

import asyncio
from dataclasses import dataclass, field

from bench.cases import Case
from bench.fakes import answers, checks
from bench.fakes.framing import RequestReader
from bench.fakes.pacer import Pacer, Stream


@dataclass(slots=True)
class Counts:
    """What the workers saw, for the report of a run that went wrong."""

    context: int = 0
    generation: int = 0
    other: int = 0
    connections: int = 0
    wrong: int = 0
    reasons: list[str] = field(default_factory=list)

    def note_wrong(self, reason: str) -> None:
        self.wrong += 1
        if len(self.reasons) < 5:
            self.reasons.append(reason)


class Worker:
    """Answers shared by all connections of both roles."""

    def __init__(self, case: Case, dialect: str, pacer: Pacer | None) -> None:
        self.case = case
        self.dialect = dialect
        self.pacer = pacer
        self.counts = Counts()
        self.routes = answers.control_routes(
            {"sglang": "sglang", "vllm": "vllm"}.get(dialect, "tensorrt_llm")
        )
        self.context = answers.TensorRTContext(case)
        self.fixed_context = answers.vllm_context(case) if dialect == "vllm" else answers.sglang_context(case)
        self.json = b"" if case.streamed else answers.generation_json(case)
        self.stream = answers.StreamAnswer(case) if case.streamed else None
        self.least_generation = checks.least_generation_bytes(case, dialect)


class WorkerConnection(asyncio.Protocol):
    """Reads requests, answers each with rendered bytes."""

    __slots__ = ("_checked", "_is_context", "_reader", "_stream", "_transport", "_worker")

    def __init__(self, worker: Worker, is_context: bool) -> None:
        self._worker = worker
        self._is_context = is_context
        self._reader = RequestReader()
        self._checked = False
        self._stream: Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop has its own class
        self._worker.counts.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        if self._stream is not None:
            self._stream.closed = True

    def data_received(self, data: bytes) -> None:
        for head, body in self._reader.feed(data):
            self._answer(head, body)
        if self._reader.wants_continue:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self, head: bytes, body: bytes) -> None:
        worker = self._worker
        if not head.startswith(b"POST /v1/"):
            worker.counts.other += 1
            path = head.split(b" ", 2)[1].split(b"?")[0]
            self._transport.write(
                worker.routes.get(path) or answers.error_answer(b"404 Not Found", "Not Found")
            )
            return
        try:
            if self._is_context:
                self._answer_context(body)
            else:
                self._answer_generation(body)
        except (checks.WrongLegError, ValueError) as error:
            worker.counts.note_wrong(str(error))
            self._transport.write(answers.error_answer(b"400 Bad Request", str(error)))

    def _answer_context(self, body: bytes) -> None:
        worker = self._worker
        worker.counts.context += 1
        if not self._checked:
            checks.context_leg(worker.case, body, worker.dialect)
            self._checked = True
        if worker.dialect != "trtllm":
            self._transport.write(worker.fixed_context)
            return
        pieces = worker.context.pieces(body)
        if pieces is None:
            raise checks.WrongLegError("no disagg_request_id")
        self._transport.writelines(pieces)

    def _answer_generation(self, body: bytes) -> None:
        worker = self._worker
        worker.counts.generation += 1
        if not self._checked:
            checks.generation_leg(worker.case, body, worker.dialect)
            self._checked = True
        elif len(body) < worker.least_generation:
            raise checks.WrongLegError(f"generation leg of {len(body)} bytes is too small")
        stream = worker.stream
        if stream is None:
            self._transport.write(worker.json)
        elif worker.pacer is None:
            self._transport.write(stream.burst)
        else:
            self._transport.write(stream.start)
            endless = worker.case.streams > 0
            self._stream = Stream(self._transport, stream.frames, None if endless else stream.end)
            worker.pacer.add(self._stream)
