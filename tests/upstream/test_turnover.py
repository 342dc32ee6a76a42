"""A connection goes back to its pool before the task that asked has seen the answer: the next one may take it."""

import asyncio

import pytest

from proxy.errors import ClientGone
from proxy.upstream.connection import WorkerConnection


class Pool:
    def give_back(self, connection):
        pass

    def forget(self, connection):
        pass


class Transport(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.aborted = False

    def writelines(self, pieces):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.aborted

    def abort(self):
        self.aborted = True


def answer(body):
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.fixture
async def connection():
    connection = WorkerConnection(Pool(), asyncio.get_running_loop())
    connection.connection_made(Transport())
    return connection


def first_step(coroutine):
    """What the event loop does first with another task; it now waits for the worker."""
    coroutine.send(None)
    return coroutine


def last_step(coroutine):
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


async def test_each_task_gets_its_own_answer(connection):
    connection.send([b"one"])
    first = asyncio.ensure_future(connection.answer())
    await asyncio.sleep(0)
    connection.data_received(answer(b"one"))
    connection.send([b"two"])
    second = first_step(connection.answer())
    assert (await first).body == b"one"
    connection.data_received(answer(b"two"))
    assert last_step(second).body == b"two"


async def test_a_late_cancellation_does_not_hit_the_next_exchange(connection):
    connection.send([b"one"])
    first = asyncio.ensure_future(connection.answer())
    await asyncio.sleep(0)
    connection.data_received(answer(b"one"))
    number = connection.send([b"two"])
    second = first_step(connection.answer())
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    connection.abort(number - 1, ClientGone("late"))
    connection.data_received(answer(b"two"))
    assert last_step(second).body == b"two"
