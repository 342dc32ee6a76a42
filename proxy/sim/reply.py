"""One answer of a worker, written through its faults."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.types import Send

from proxy.sim.connection import SimProtocol
from proxy.sim.engine import Run
from proxy.sim.faults import Fault

Headers = Sequence[tuple[bytes, bytes]]

JSON_TYPE = (b"content-type", b"application/json")
SSE_TYPE = (b"content-type", b"text/event-stream; charset=utf-8")
GARBAGE = b"\x16\x03\x01\x02\x00\x01\x00\xfc this is not HTTP\r\n\r\n"
UNSOLICITED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnull"
SSE_ERROR = (
    b'data: {"error": {"message": "Generation failed: simulated", "type": "server_error", '
    b'"code": null, "param": null}}\n\n'
)
SSE_DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.encode


class AnswerEnded(Exception):
    """A fault has ended the answer; nothing may follow."""


class Reply:
    """Writes one answer. Every method may raise `AnswerEnded` or `proxy.sim.engine.Aborted`."""

    __slots__ = ("_connection", "_faults", "_run", "_send", "events", "status")

    def __init__(self, send: Send, connection: SimProtocol, run: Run) -> None:
        self._send = send
        self._connection = connection
        self._run = run
        self._faults: dict[str, Fault] = {}
        self.events = 0
        self.status = 0

    def apply(self, faults: Sequence[Fault]) -> None:
        """Let these faults act on the answer."""
        self._faults = {fault.kind: fault for fault in faults}

    def fault(self, kind: str) -> Fault | None:
        """The fault of this kind that acts on the answer, if any."""
        return self._faults.get(kind)

    async def intercept(self) -> None:
        """Apply the faults that come before the answer or in its place."""
        faults = self._faults
        if slow := faults.get("slow_first_byte"):
            await self._run.sleep(slow.seconds if slow.seconds is not None else 1.0)
        if hang := faults.get("hang"):
            await self._run.sleep(hang.seconds)
        if "reset" in faults:
            await self._connection.close(with_reset=True)
            raise AnswerEnded
        if "disconnect" in faults:
            await self._connection.close()
            raise AnswerEnded
        if garbage := faults.get("garbage"):
            self._connection.write_raw(GARBAGE if garbage.body is None else garbage.body.encode())
            await self._connection.close()
            raise AnswerEnded
        if informational := faults.get("informational"):
            line = f"HTTP/1.1 {informational.status or 103} Simulated\r\nx-sim-early: yes\r\n\r\n"
            self._connection.write_raw(line.encode())
        if "chunk_extensions" in faults or "trailers" in faults:
            self._connection.decorate_chunks(
                extension="chunk_extensions" in faults, trailer="trailers" in faults
            )
        if status := faults.get("status"):
            await self._status(status)
            raise AnswerEnded
        if "null_body" in faults:
            await self.json(b"null")
            raise AnswerEnded

    async def _status(self, fault: Fault) -> None:
        code = fault.status or 503
        body = fault.body
        if body is None:
            body = _encode(
                {
                    "object": "error",
                    "message": "simulated",
                    "type": "SimulatedError",
                    "param": None,
                    "code": code,
                }
            ).decode()
        headers = [(name.lower().encode(), value.encode()) for name, value in fault.headers.items()]
        if fault.retry_after is not None:
            headers.append((b"retry-after", b"%d" % fault.retry_after))
        await self.full(code, body.encode(), (b"content-type", fault.content_type.encode()), headers)

    async def json(self, body: bytes, status: int = 200, headers: Headers = ()) -> None:
        """A complete JSON answer."""
        await self.full(status, body, JSON_TYPE, headers)

    async def full(
        self, status: int, body: bytes, content_type: tuple[bytes, bytes] | None = None, headers: Headers = ()
    ) -> None:
        """A complete answer with a content-length."""
        faults = self._faults
        fields = [*headers] if content_type is None else [content_type, *headers]
        if not faults:
            fields.append((b"content-length", b"%d" % len(body)))
            await self._start(status, fields)
            await self._send({"type": "http.response.body", "body": body})
            return
        if "truncated_json" in faults:
            body = body[: len(body) // 2]
        if "chunk_extensions" not in faults and "trailers" not in faults:
            fields.append((b"content-length", b"%d" % len(body)))
        await self._start(status, fields)
        if cut := faults.get("cut"):
            await self._send(
                {"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True}
            )
            await self._end_connection(cut)
        if (stall := faults.get("stall")) is not None:
            half = len(body) // 2
            await self._send({"type": "http.response.body", "body": body[:half], "more_body": True})
            await self._run.sleep(stall.seconds)
            body = body[half:]
        await self._send({"type": "http.response.body", "body": body})
        await self._after_answer()

    async def start_stream(self) -> None:
        """Status line and headers of an event stream."""
        await self._start(200, [SSE_TYPE])

    async def event(self, frame: bytes) -> None:
        """One event of the stream, in one write."""
        if self._faults:
            await self._before_event(frame)
        self.events += 1
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def finish(self, frame: bytes) -> None:
        """The last bytes of the stream."""
        if self._faults:
            await self._before_event(frame)
        self.events += 1
        await self._send({"type": "http.response.body", "body": frame})
        if self._faults:
            await self._after_answer()

    async def _before_event(self, frame: bytes) -> None:
        faults = self._faults
        if (stall := faults.get("stall")) and self.events == stall.after_events:
            await self._run.sleep(stall.seconds)
        if (error := faults.get("sse_error")) and self.events == error.after_events:
            await self._send({"type": "http.response.body", "body": SSE_ERROR + SSE_DONE + SSE_DONE})
            await self._after_answer()
            raise AnswerEnded
        if (cut := faults.get("cut")) and self.events == cut.after_events:
            if cut.inside:
                # An announced chunk of which only the first half arrives.
                self._connection.write_raw(b"%x\r\n%b" % (len(frame), frame[: len(frame) // 2]))
            await self._end_connection(cut)

    async def _end_connection(self, cut: Fault) -> None:
        if cut.with_reset:
            # RST discards what the peer has not received: give the event loop a turn to send.
            await asyncio.sleep(0.001)
        await self._connection.close(with_reset=cut.with_reset)
        raise AnswerEnded

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        faults = self._faults
        if faults:
            if "close" in faults:
                headers.append((b"connection", b"close"))
            if oversized := faults.get("oversized_headers"):
                headers.append((b"x-sim-large", b"x" * oversized.size))
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _after_answer(self) -> None:
        if "unsolicited" in self._faults:
            self._connection.write_raw(UNSOLICITED)
        if "close_silently" in self._faults:
            await self._connection.close()


async def send_error(reply: Reply, message: str) -> None:
    """400 of a request that does not fit the model."""
    await reply.json(_encode({"error": message}), 400)


async def send_envelope(reply: Reply, message: str) -> None:
    """400 of a handler: almost each failure of a worker is one."""
    envelope = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    await reply.json(_encode(envelope), 400)
