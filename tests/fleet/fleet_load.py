"""Many keep-alive connections that ask the proxy one request after the other, and requests that are held open."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

BODY = {"model": "sim", "prompt": "one two three", "max_tokens": 2}


class Load:
    """What became of the requests of all connections.

    ``lost`` names the connections that broke, once per break; ``statuses`` counts the answers.
    """

    def __init__(self, port: int, body: dict[str, Any] | None = None) -> None:
        self.port = port
        self.statuses: Counter[int] = Counter()
        self.lost: list[str] = []
        self.stopping = False
        data = json.dumps(body or BODY).encode()
        self._rest = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)

    @property
    def answers(self) -> int:
        return self.statuses.total()

    async def connection(self, name: str, count: int | None = None) -> None:
        """Ask ``count`` times, or until ``stopping``; connects again when the connection breaks."""
        asked = 0
        while not self._enough(asked, count):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                self.lost.append(name)
                await asyncio.sleep(0.05)
                continue
            try:
                while not self._enough(asked, count):
                    status, closes = await self._ask(reader, writer, f"{name}.{asked}")
                    self.statuses[status] += 1
                    asked += 1
                    if closes:
                        break
            except (OSError, asyncio.IncompleteReadError):
                self.lost.append(name)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def run(self, connections: int, count: int | None = None) -> None:
        """All connections at once; they are called c0, c1 and so on."""
        await asyncio.gather(*(self.connection(f"c{number}", count) for number in range(connections)))

    def _enough(self, asked: int, count: int | None) -> bool:
        return self.stopping or (count is not None and asked >= count)

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request_id: str
    ) -> tuple[int, bool]:
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-request-id: %b\r\n" % request_id.encode()
            + self._rest
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return int(head[9:12]), b"connection: close" in head


def _request(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return (
        b"POST %b HTTP/1.1\r\nhost: x\r\nx-request-id: c0.0\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (path.encode(), len(data), data)
    )


async def ask(port: int, path: str, body: dict[str, Any]) -> int:
    """One request on a connection of its own; its status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_request(path, body))
        return int((await asyncio.wait_for(reader.read(), 30))[9:12])
    finally:
        writer.close()
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def held_open(
    port: int, count: int, body: dict[str, Any] | None = None
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many requests at once, each on a connection of its own, which breaks at the end of the block."""
    pairs = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(count)))
    try:
        for _, writer in pairs:
            writer.write(_request("/v1/completions", body or BODY))
        yield [reader for reader, _ in pairs]
    finally:
        for _, writer in pairs:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for _, writer in pairs), return_exceptions=True)
