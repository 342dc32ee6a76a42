"""What a request becomes: scope, body, answer; in one piece, split anywhere, byte by byte."""

import asyncio
from collections.abc import Iterator

import pytest
from fake_downstream import GET, App, Connection, settle

from proxy.downstream.limits import Limits

POST = b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\n"

# name -> raw request, body
REQUESTS: dict[str, tuple[bytes, bytes]] = {
    "no body": (GET, b""),
    "empty": (POST + b"content-length: 0\r\n\r\n", b""),
    "length": (POST + b"Content-Length: 7\r\n\r\n" + b'{"a":1}', b'{"a":1}'),
    "blank behind the length": (POST + b"Content-Length: 2 \r\n\r\n{}", b"{}"),
    "chunked": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n",
        b"abc0123456789",
    ),
    "chunked with all there is": (
        POST + b"Transfer-Encoding: Chunked \r\n\r\n3;a=b\r\nabc\r\n0;c\r\nsum: 1\r\n\r\n",
        b"abc",
    ),
    "offer of h2c": (
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        b"{}",
    ),
    "offer of h2c, chunked": (
        POST
        + b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"{}",
    ),
    "offer of a websocket": (
        b"GET / HTTP/1.1\r\nhost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n",
        b"",
    ),
    "empty lines before": (b"\r\n\r\n" + GET, b""),
}


def splits(raw: bytes) -> Iterator[list[bytes]]:
    yield [raw]
    for at in range(1, len(raw)):
        yield [raw[:at], raw[at:]]
    yield [raw[at : at + 1] for at in range(len(raw))]


@pytest.mark.parametrize("name", REQUESTS)
async def test_requests(name: str) -> None:
    raw, body = REQUESTS[name]
    for pieces in splits(raw):
        app = App()
        connection = Connection(app)
        await connection.send(*pieces)
        (response,) = connection.responses()
        assert (response.status, response.body) == (200, b"1")
        assert response.headers == {"date": "today", "content-length": "1"}
        assert app.bodies == [body]
        assert not connection.closed
        assert connection.tasks == 0
        connection.transport.lose()


async def test_the_scope() -> None:
    app = App()
    connection = Connection(app, root_path="/root")
    await connection.send(b"POST /a%20b/%e2%82%ac?q=%20 HTTP/1.1\r\nHost: p\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    (scope,) = app.scopes
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
    assert (scope["http_version"], scope["method"], scope["scheme"]) == ("1.1", "POST", "http")
    assert (scope["path"], scope["raw_path"]) == ("/root/a b/€", b"/root/a%20b/%e2%82%ac")
    assert scope["query_string"] == b"q=%20"
    assert scope["headers"] == [(b"host", b"p"), (b"x-a", b"1"), (b"x-a", b"2")]
    assert scope["client"] == ("127.0.0.1", 50000)
    assert scope["server"] == ("127.0.0.1", 8000)
    assert scope["root_path"] == "/root"
    assert scope["state"] == {}


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"http://p/x", "/x"), (b"http://p", "/"), (b"*", "*"), (b"//a//b", "//a//b"), (b"/?", "/")],
)
async def test_forms_of_the_target(target: bytes, path: str) -> None:
    app = App()
    connection = Connection(app)
    await connection.send(b"OPTIONS %b HTTP/1.1\r\nHost: p\r\n\r\n" % target)
    assert app.scopes[0]["path"] == path
    assert app.scopes[0]["query_string"] == b""


async def test_many_requests_on_one_connection() -> None:
    app = App()
    connection = Connection(app)
    for number in range(1, 6):
        await connection.send(GET if number % 2 else REQUESTS["chunked"][0])
        assert connection.responses()[0].body == b"%d" % number
    assert connection.state.total_requests == 5


@pytest.mark.parametrize("value", [b"close", b"Close", b"x, close"])
async def test_a_request_that_says_close(value: bytes) -> None:
    connection = Connection(App())
    await connection.send(b"GET / HTTP/1.1\r\nhost: p\r\nconnection: %b\r\n\r\n" % value)
    (response,) = connection.responses()
    assert response.headers["connection"] == "close"
    assert connection.closed
    assert connection.loop.armed == []


@pytest.mark.parametrize("keep_alive", [b"", b"connection: keep-alive\r\n"])
async def test_http_1_0(keep_alive: bytes) -> None:
    app = App()
    connection = Connection(app)
    await connection.send(b"POST / HTTP/1.0\r\n" + keep_alive + b"content-length: 2\r\n\r\n{}")
    (response,) = connection.responses()
    assert app.scopes[0]["http_version"] == "1.0"
    assert app.bodies == [b"{}"]
    assert response.headers["connection"] == "close"
    assert connection.closed


async def test_expect_100_continue() -> None:
    expecting = POST + b"expect: 100-Continue\r\ncontent-length: 2\r\n\r\n"
    app = App()
    connection = Connection(app)
    await connection.send(expecting)
    assert connection.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert app.scopes == []
    await connection.send(b"{}")
    assert connection.responses()[0].status == 200
    assert app.bodies == [b"{}"]
    # No 100 where the body is here, is empty, or the client is too old to know it.
    for raw in (
        expecting + b"{}",
        expecting.replace(b"length: 2", b"length: 0"),
        expecting.replace(b"1.1", b"1.0") + b"{}",
    ):
        connection = Connection(App())
        await connection.send(raw)
        assert connection.responses()[0].status == 200
    connection = Connection(App())
    await connection.send(expecting.replace(b"1.1", b"1.0"))
    assert connection.take() == b""


async def test_an_expected_body_that_is_too_large_is_refused_before_it_is_sent() -> None:
    connection = Connection(App(), Limits(max_body_bytes=10))
    await connection.send(POST + b"expect: 100-continue\r\ncontent-length: 11\r\n\r\n")
    (response,) = connection.responses()
    assert response.status == 413


async def test_large_bodies_are_joined_once() -> None:
    """Nothing is copied and reading is not paused while more arrives."""
    app = App()
    connection = Connection(app)
    connection.transport.receive(POST + b"content-length: %d\r\n\r\n" % (200 * 4096))
    pieces = [bytes([number]) * 4096 for number in range(200)]
    for number, piece in enumerate(pieces[:-1], 1):
        connection.transport.receive(piece)
        assert len(connection.protocol._pieces) == number
        assert connection.protocol._pieces[-1] is piece
    assert connection.transport.reading
    await connection.send(pieces[-1])
    assert app.bodies == [b"".join(pieces)]


async def test_a_body_in_one_piece_is_not_copied() -> None:
    bodies: list[bytes] = []

    async def keep(scope: object, receive: object, send: object) -> None:
        bodies.append((await receive())["body"])  # type: ignore[operator]

    connection = Connection(App(keep))
    body = b"x" * 300_000
    await connection.send(POST + b"content-length: 300000\r\n\r\n", body)
    assert bodies[0] is body


async def test_tiny_chunks_do_not_pile_up_as_objects() -> None:
    app = App()
    connection = Connection(app)
    await connection.send(POST + b"transfer-encoding: chunked\r\n\r\n")
    for _ in range(10):
        connection.transport.receive(b"1\r\nx\r\n" * 10_000)
    assert len(connection.protocol._pieces) == 10
    await connection.send(b"0\r\n\r\n")
    assert app.bodies == [b"x" * 100_000]


async def test_the_application_starts_when_the_body_is_complete() -> None:
    app = App()
    connection = Connection(app)
    await connection.send(POST + b"content-length: 10\r\n\r\n", b"01234")
    assert app.scopes == []
    assert connection.tasks == 0
    await connection.send(b"56789")
    assert app.bodies == [b"0123456789"]


async def test_lost_while_a_request_arrives() -> None:
    for sent in (
        b"",
        b"GET / HT",
        POST + b"content-length: 10\r\n\r\n",
        POST + b"content-length: 10\r\n\r\n012",
    ):
        app = App()
        connection = Connection(app)
        if sent:
            await connection.send(sent)
        connection.transport.receive_eof()
        await settle()
        assert app.scopes == []
        assert connection.loop.armed == []
        assert connection.state.connections == set()
        assert connection.protocol._pieces == []


async def test_bytes_behind_the_end_of_a_connection_are_not_a_request() -> None:
    """TLS may still deliver what was decrypted when the transport is closing."""
    app = App()
    connection = Connection(app)
    await connection.send(b"GET / HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n")
    assert len(app.scopes) == 1
    connection.protocol.data_received(GET)
    await asyncio.sleep(0)
    assert len(app.scopes) == 1
