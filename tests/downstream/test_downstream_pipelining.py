"""Several requests at once on one connection: one at a time is parsed and answered, in order."""

import asyncio

import pytest
from fake_downstream import GET, App, Connection, Held, settle

from proxy.downstream.limits import Limits


def get(path: str) -> bytes:
    return b"GET %b HTTP/1.1\r\nhost: p\r\n\r\n" % path.encode()


async def test_answers_in_order() -> None:
    app = App()
    connection = Connection(app)
    await connection.send(
        get("/1") + get("/2") + b"POST /3 HTTP/1.1\r\nhost: p\r\ncontent-length: 2\r\n\r\n{}" + get("/4")
    )
    assert [scope["path"] for scope in app.scopes] == ["/1", "/2", "/3", "/4"]
    assert [response.body for response in connection.responses()] == [b"1", b"2", b"3", b"4"]
    assert app.bodies[2] == b"{}"
    assert connection.tasks == 0


async def test_split_anywhere() -> None:
    raw = (
        get("/1")
        + b"POST /2 HTTP/1.1\r\nhost: p\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        + get("/3")
    )
    for at in range(1, len(raw)):
        app = App()
        connection = Connection(app)
        await connection.send(raw[:at], raw[at:])
        assert [scope["path"] for scope in app.scopes] == ["/1", "/2", "/3"]
        assert len(connection.responses()) == 3


async def test_only_one_runs() -> None:
    held = Held()
    app = App(held)
    connection = Connection(app)
    await connection.send(get("/1") + get("/2"))
    assert [scope["path"] for scope in app.scopes] == ["/1"]
    held.cycles[0].respond(200, [], b"one")
    held.release()
    await settle()
    assert [scope["path"] for scope in app.scopes] == ["/1", "/2"]
    held.cycles[1].respond(200, [], b"two")
    held.release()
    await settle()
    assert [response.body for response in connection.responses()] == [b"one", b"two"]


async def test_bytes_that_arrive_before_the_held_ones_are_read_stay_behind_them() -> None:
    """An answer completes and, in the same turn of the loop, more is received."""
    for first, second in (
        (get("/2"), get("/3")),
        (get("/2")[:9], get("/2")[9:] + get("/3")),
        (b"\r\n", get("/2") + get("/3")),
    ):
        held = Held()
        app = App(held)
        connection = Connection(app)
        await connection.send(get("/1") + first)
        held.cycles[0].respond(200, [], b"one")
        connection.transport.receive(second)
        held.release()
        await settle()
        for number in (1, 2):
            held.cycles[number].respond(200, [], b"more")
            held.release()
            await settle()
        assert [scope["path"] for scope in app.scopes] == ["/1", "/2", "/3"]
        assert len(connection.responses()) == 3


async def test_the_answer_belongs_to_its_own_request() -> None:
    """uvicorn's `protocol.cycle` would be the last parsed request."""
    held = Held()
    connection = Connection(App(held))
    await connection.send(get("/1") + get("/2"))
    cycle = held.cycles[0]
    assert cycle.scope["path"] == "/1"
    await cycle.send(
        {"type": "http.response.start", "status": 200, "headers": [(b"x-path", cycle.scope["raw_path"])]}
    )
    await cycle.send({"type": "http.response.body", "body": b"one"})
    held.release()
    await settle()
    assert connection.responses()[0].headers["x-path"] == "/1"


async def test_later_bytes_are_held_up_to_a_limit() -> None:
    held = Held()
    app = App(held)
    connection = Connection(app)
    large = b"POST /2 HTTP/1.1\r\nhost: p\r\ncontent-length: 200000\r\n\r\n"
    await connection.send(get("/1"), large)
    while connection.transport.reading:
        connection.transport.receive(b"x" * 10_000)
    assert 64 * 1024 < len(connection.protocol._unread) < 80 * 1024
    sent = len(connection.protocol._unread) - len(large)
    held.cycles[0].respond(200, [], b"one")
    held.release()
    await settle()
    assert connection.transport.reading
    await connection.send(b"x" * (200_000 - sent))
    assert [scope["path"] for scope in app.scopes] == ["/1", "/2"]
    assert (await held.cycles[1].receive())["body"] == b"x" * 200_000


async def test_many_held_requests() -> None:
    app = App()
    connection = Connection(app)
    await connection.send(b"".join(get(f"/{number}") for number in range(300)))
    while len(app.scopes) < 300:
        await settle()
    assert len(connection.responses()) == 300


@pytest.mark.parametrize("how", ["eof", "lost", "reset"])
async def test_the_running_request_hears_of_the_end_of_the_connection(how: str) -> None:
    left: list[str] = []

    async def wait(scope: dict, receive: object, send: object) -> None:
        await receive()  # type: ignore[operator]
        message = await receive()  # type: ignore[operator]
        left.append(scope["path"] + " " + message["type"])
        with pytest.raises(OSError, match="disconnected"):
            await send({"type": "http.response.start", "status": 200})  # type: ignore[operator]

    app = App(wait)
    connection = Connection(app)
    await connection.send(get("/1") + get("/2"))
    if how == "eof":
        connection.transport.receive_eof()
    else:
        connection.transport.lose(None if how == "lost" else ConnectionResetError())
    await settle()
    assert left == ["/1 http.disconnect"]
    assert len(app.scopes) == 1
    assert connection.tasks == 0
    assert connection.loop.armed == []
    assert connection.take() == b""


async def test_garbage_during_an_answer_comes_after_it() -> None:
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET, b"\x00\x01 garbage\r\n\r\n")
    cycle = held.cycles[0]
    await cycle.send({"type": "http.response.start", "status": 200})
    await cycle.send({"type": "http.response.body", "body": b"one", "more_body": True})
    await connection.send(b"more garbage\r\n\r\n")
    await cycle.send({"type": "http.response.body", "body": b"two"})
    held.release()
    await settle()
    answer, refusal = connection.responses()
    assert (answer.status, answer.body) == (200, b"onetwo")
    assert (refusal.status, refusal.headers["connection"]) == (400, "close")


async def test_nothing_follows_an_answer_that_closes() -> None:
    app = App()
    connection = Connection(app)
    await connection.send(b"GET / HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n" + get("/2"))
    assert len(connection.responses()) == 1
    assert len(app.scopes) == 1
    assert connection.closed


async def test_a_head_of_which_a_part_was_held_has_its_time() -> None:
    held = Held()
    connection = Connection(App(held), Limits(header_timeout=15))
    await connection.send(GET + GET[:10])
    connection.loop.advance(1000)  # the answer takes its time
    held.cycles[0].respond(200, [], b"one")
    held.release()
    await settle()
    assert connection.responses()[0].status == 200
    connection.loop.advance(14)
    assert connection.take() == b""
    connection.loop.advance(1)
    assert connection.responses()[0].status == 408


async def test_refused_behind_an_answer() -> None:
    connection = Connection(App())
    await connection.send(GET + b"GET / HTTP/1.1\r\n\r\n" + GET)
    assert [response.status for response in connection.responses()] == [200, 400]


async def test_the_connection_ends_between_two_requests() -> None:
    app = App()
    connection = Connection(app)
    connection.transport.receive(get("/1") + get("/2"))
    while not connection.transport.pieces:
        await asyncio.sleep(0)
    connection.transport.lose()
    await settle()
    assert len(app.scopes) == 1
    assert connection.tasks == 0
