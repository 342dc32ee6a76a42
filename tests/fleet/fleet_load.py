"""Many keep-alive connections that ask the proxy one request after the other."""

import asyncio
import contextlib
import json
from collections import Counter
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
