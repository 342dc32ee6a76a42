"""Paced streams: every frame in its own write, in order, evenly spread."""

import asyncio
import socket
import time

import uvloop

from bench.fakes.pacer import Pacer, Stream


class Sink(asyncio.Protocol):
    """A stream that starts when the client connects."""

    def __init__(self, pacer, frames, final):
        self._pacer, self._frames, self._final = pacer, frames, final

    def connection_made(self, transport):
        self._pacer.add(Stream(transport, self._frames, self._final))


async def collect(streams):
    loop = asyncio.get_running_loop()
    pacer = Pacer(loop, 0.02)
    frames = [b"a", b"b", b"c"]
    server = await loop.create_server(lambda: Sink(pacer, frames, b"end"), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def read():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pieces, times = [], []
        while not pieces or pieces[-1] != b"end":
            pieces.append(await reader.read(100))
            times.append(time.monotonic())
        writer.close()
        return pieces, times[0]

    results = await asyncio.gather(*(read() for _ in range(streams)))
    server.close()
    return results


def test_frames_arrive_one_by_one_and_streams_are_spread():
    results = uvloop.run(collect(5))
    for pieces, _ in results:
        assert pieces == [b"a", b"b", b"c", b"end"]
    starts = sorted(first for _, first in results)
    assert starts[-1] - starts[0] > 0.005


def test_endless_stream_starts_again_and_stops_with_its_client():
    ours, theirs = socket.socketpair()

    class Transport:
        def get_extra_info(self, name):
            return ours

        def get_write_buffer_size(self):
            return 0

        def write(self, data):
            raise AssertionError("the socket had room")

    stream = Stream(Transport(), [b"a", b"b"], None)
    assert all(stream.write_next() for _ in range(3))
    assert theirs.recv(10) == b"aba"
    theirs.close()
    assert not stream.write_next() or not stream.write_next()
    assert stream.closed
    ours.close()
