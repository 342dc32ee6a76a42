"""Clients that ask all kinds of things and leave when they like, of workers that fail in all kinds of ways."""

import asyncio
import contextlib
import json
import random
from collections import Counter
from typing import Any

from proxy.sim import ThreadedSimCluster

# One in so many requests is left before its answer is complete.
LEAVES = 0.15
# With one in so many a worker gets a fault, for its next request or two.
BREAKS = 0.08
SECONDS = 30.0
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "status", "status": 400},
    {"kind": "status", "status": 429},
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 503},
    {"kind": "reset"},
    {"kind": "disconnect"},
    {"kind": "reset_reused"},
    {"kind": "accept_reset"},
    {"kind": "garbage"},
    {"kind": "null_body"},
    {"kind": "truncated_json"},
    {"kind": "oversized_headers"},
    {"kind": "cut", "after_events": 2},
    {"kind": "cut", "after_events": 1, "inside": True, "with_reset": True},
    {"kind": "sse_error"},
    {"kind": "not_sse"},
    {"kind": "hang"},
    {"kind": "stall"},
    {"kind": "slow_first_byte", "seconds": 0.1},
    {"kind": "close"},
    {"kind": "close_silently"},
    {"kind": "unsolicited"},
    {"kind": "missing_handoff", "handoff": "null"},
    {"kind": "missing_ids"},
    {"kind": "finish"},
)


class Chaos:
    """``outcomes``: statuses, ``left`` for those whose client left, ``lost`` for broken connections."""

    def __init__(self, port: int, cluster: ThreadedSimCluster, seed: int) -> None:
        self._port = port
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._to_do = 0
        self.outcomes: Counter[int | str] = Counter()

    @property
    def done(self) -> int:
        return self.outcomes.total()

    async def run(self, requests: int, connections: int = 48) -> None:
        """Ask so many requests, with faults all the while."""
        self._to_do = requests
        try:
            await asyncio.gather(*(self._connection(number) for number in range(connections)))
        finally:
            for worker in self._cluster.workers:
                worker.clear_faults()

    def _break_a_worker(self) -> None:
        """Whatever the machine's speed, so many requests meet so many faults."""
        worker = self._chance.choice(self._cluster.workers)
        worker.add_fault(**self._chance.choice(FAULTS), count=self._chance.choice((1, 2)))

    async def _connection(self, number: int) -> None:
        while self._to_do > 0:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            try:
                async with asyncio.timeout(SECONDS):
                    while self._to_do > 0 and await self._ask(reader, writer, number):
                        pass
            except (OSError, asyncio.IncompleteReadError):
                self.outcomes["lost"] += 1
            finally:
                if self._chance.random() < 0.5:
                    writer.transport.abort()
                else:
                    writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        """One request; whether the connection can take another."""
        self._to_do -= 1
        chance = self._chance
        if chance.random() < BREAKS:
            self._break_a_worker()
        body: dict[str, Any] = {
            "model": "sim",
            "max_tokens": chance.randint(1, 12),
            "stream": chance.random() < 0.5,
        }
        if chance.random() < 0.5:
            path, body["prompt"] = "/v1/completions", f"some words {chance.randrange(50)}"
        else:
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "user", "content": f"some words {chance.randrange(50)}"}]
        data = json.dumps(body).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: x\r\nx-session-id: s%d\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer key-%d\r\ncontent-length: %d\r\n\r\n%b"
            % (path.encode(), chance.randrange(40), number % 2, len(data), data)
        )
        if chance.random() < LEAVES:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0.0, 0.05)):
                    await self._answer(reader)
            self.outcomes["left"] += 1
            return False
        status, goes_on = await self._answer(reader)
        self.outcomes[status] += 1
        if status == 429:
            # Refusals come at once: clients that do not wait would soon have nothing but those.
            await asyncio.sleep(0.2)
        return goes_on

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bool]:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"transfer-encoding: chunked" in head:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        else:
            await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        return int(head[9:12]), b"connection: close" not in head
