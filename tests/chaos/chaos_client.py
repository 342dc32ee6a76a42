"""A client that takes answers apart with h11, which shares no code with the proxy."""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h11

SECONDS = 15.0
_READ = 256 * 1024


@dataclass
class ClientAnswer:
    """What a client got.

    ``complete``: the message has come to its end; otherwise the connection ended within it. ``closed``: the connection
    was closed behind the answer. ``seconds``: from the request to the end.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False
    closed: bool = False
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class ChaosClient:
    """One connection to the proxy; `open` it first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._protocol = h11.Connection(h11.CLIENT)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> "ChaosClient":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    def send(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> None:
        """Write a POST request."""
        data = json.dumps(body).encode()
        fields = {
            "host": "proxy",
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }
        request = h11.Request(method="POST", target=path, headers=list(fields.items()))
        self.writer.write(
            self._protocol.send(request)
            + self._protocol.send(h11.Data(data=data))
            + self._protocol.send(h11.EndOfMessage())
        )

    async def answer(self) -> ClientAnswer:
        """Read one answer to its end, however it ends."""
        async with asyncio.timeout(SECONDS):
            return await self._answer()

    async def _answer(self) -> ClientAnswer:
        answer = ClientAnswer()
        pieces: list[bytes] = []
        began = time.monotonic()
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError:
                answer.closed = True
                break
            if event is h11.NEED_DATA:
                try:
                    data = await self.reader.read(_READ)
                except ConnectionError:
                    answer.closed = True
                    break
                self._protocol.receive_data(data)
            elif isinstance(event, h11.InformationalResponse):
                raise AssertionError(f"an informational answer reached the client: {event}")
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {name.decode(): value.decode() for name, value in event.headers}
                names = [name for name, _ in event.headers if name != b"server-timing"]  # may come twice
                assert len(set(names)) == len(names), f"a header came twice: {event.headers}"
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                answer.complete = True
                break
            else:
                answer.closed = True
                break
        answer.body = b"".join(pieces)
        answer.seconds = time.monotonic() - began
        return answer

    @property
    def reusable(self) -> bool:
        """Whether the last answer left the connection open for another request."""
        return self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE

    def next(self) -> None:
        """Begin anew after a complete answer."""
        self._protocol.start_next_cycle()

    async def is_closed(self, seconds: float = SECONDS) -> bool:
        """Whether the proxy closes the connection within this time, without another byte."""
        try:
            async with asyncio.timeout(seconds):
                return not await self.reader.read(1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    async def close(self) -> None:
        """Close at once; the proxy sees the end of the connection."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Vanish without a farewell."""
        self.writer.transport.abort()


async def ask(port: int, path: str, body: Any, headers: Mapping[str, str] | None = None) -> ClientAnswer:
    """One request on a connection of its own."""
    client = await ChaosClient(port).open()
    try:
        client.send(path, body, headers)
        return await client.answer()
    finally:
        await client.close()
