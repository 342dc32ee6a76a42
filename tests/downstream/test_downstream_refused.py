"""Requests that are refused before the application sees them: an answer in OpenAI's shape, then the end."""

import json

import pytest
from fake_downstream import GET, App, Connection, Held, settle

from proxy.downstream.limits import Limits

POST = b"POST / HTTP/1.1\r\nhost: p\r\n"

BAD: dict[str, bytes] = {
    "garbage": b"hello there\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "the same Host twice": b"GET / HTTP/1.1\r\nhost: a\r\nHost: a\r\n\r\n",
    "unknown method": b"FOO / HTTP/1.1\r\nhost: a\r\n\r\n",
    "lower-case method": b"get / HTTP/1.1\r\nhost: a\r\n\r\n",
    "CONNECT": b"CONNECT example.org:443 HTTP/1.1\r\nhost: a\r\n\r\n",
    "no host in the target": b"GET http:// HTTP/1.1\r\nhost: a\r\n\r\n",
    "target without a slash": b"GET ?a=b HTTP/1.1\r\nhost: a\r\n\r\n",
    "bytes in the target": b"GET /caf\xc3\xa9 HTTP/1.1\r\nhost: a\r\n\r\n",
    "folded line": b"GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n z\r\n\r\n",
    "bare line feed": b"GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nhost: a\n\n",
    "bare carriage return": b"GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
    "blank before the colon": b"POST / HTTP/1.1\r\nhost : a\r\n\r\n",
    "zero byte": b"GET / HTTP/1.1\r\nhost: a\0\r\n\r\n",
    "TE on 1.0": b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip": POST + b"transfer-encoding: gzip\r\n\r\n",
    "chunked, gzip": POST + b"transfer-encoding: chunked, gzip\r\n\r\n",
    "identity": POST + b"transfer-encoding: identity\r\n\r\n",
    "chunked twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "length and chunked": POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "the same length twice": POST + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "signed length": POST + b"content-length: -5\r\n\r\n",
    "list of lengths": POST + b"content-length: 5, 5\r\n\r\nhello",
    "empty length": POST + b"content-length:\r\n\r\n",
    "bad chunk size": POST + b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n",
    "negative chunk size": POST + b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n",
    "huge chunk size": POST + b"transfer-encoding: chunked\r\n\r\n11111111111111111\r\n",
    "bare line feed in a chunk": POST + b"transfer-encoding: chunked\r\n\r\n5\nhello\r\n",
    "chunk too long": POST + b"transfer-encoding: chunked\r\n\r\n5\r\nhello world\r\n",
    "bare line feed in the trailers": POST + b"transfer-encoding: chunked\r\n\r\n0\r\na: b\nc: d\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
}


def assert_refused(connection: Connection, status: int, code: str) -> None:
    (response,) = connection.responses()
    assert response.status == status
    assert response.headers["connection"] == "close"
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-disagg-proxy-error"] == f"client;{code}"
    assert response.headers["date"] == "today"
    error = json.loads(response.body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, None)
    assert connection.transport.eof_written


@pytest.mark.parametrize("name", BAD)
async def test_bad_requests(name: str) -> None:
    raw = BAD[name]
    for pieces in ([raw], [raw[at : at + 1] for at in range(len(raw))]):
        app = App()
        connection = Connection(app)
        await connection.send(*pieces)
        assert app.scopes == []
        assert connection.tasks == 0
        assert_refused(connection, 400, "invalid_http")
        connection.transport.receive_eof()  # the client has read it
        await settle()
        assert connection.closed
        assert connection.loop.armed == []


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/0.9\r\n\r\n"]
)
async def test_other_versions(head: bytes) -> None:
    connection = Connection(App())
    await connection.send(head)
    assert_refused(connection, 505, "http_version_not_supported")


async def test_header_section_too_large() -> None:
    limits = Limits(max_header_bytes=1000)
    head = b"GET / HTTP/1.1\r\nhost: a\r\nx: "
    for raw in (head + b"y" * 1000, head + b"y" * 1000 + b"\r\n\r\n", b"GET /" + b"a" * 1000):
        for pieces in ([raw], [raw[at : at + 1] for at in range(len(raw))]):
            connection = Connection(App(), limits)
            await connection.send(*pieces)
            assert_refused(connection, 431, "headers_too_large")
    # The limit holds for the head alone, however much follows it.
    app = App()
    connection = Connection(app, limits)
    await connection.send(POST + b"content-length: 5000\r\n\r\n" + b"x" * 5000)
    assert connection.responses()[0].status == 200
    just = head + b"y" * (1000 - len(head) - 4) + b"\r\n\r\n"
    await connection.send(just)
    assert connection.responses()[0].status == 200
    await connection.send(just.replace(b"y\r", b"yy\r"))
    assert_refused(connection, 431, "headers_too_large")


async def test_body_too_large_by_its_length() -> None:
    app = App()
    connection = Connection(app, Limits(max_body_bytes=10))
    await connection.send(POST + b"content-length: 10\r\n\r\n0123456789")
    assert connection.responses()[0].status == 200
    await connection.send(POST + b"content-length: 11\r\n\r\n")
    assert_refused(connection, 413, "request_too_large")
    assert len(app.scopes) == 1


async def test_body_too_large_by_its_chunks() -> None:
    app = App()
    connection = Connection(app, Limits(max_body_bytes=10))
    await connection.send(
        POST + b"transfer-encoding: chunked\r\n\r\n5;ext=aaaaaaaaaaa\r\n01234\r\n5\r\n01234\r\n"
    )
    assert connection.take() == b""
    await connection.send(b"1\r\nx\r\n")
    assert_refused(connection, 413, "request_too_large")
    assert app.scopes == []
    assert connection.protocol._pieces == []


async def test_what_follows_a_refusal_is_swallowed_up_to_a_limit() -> None:
    """Otherwise unread bytes reset the connection and the client may never read the answer."""
    for raw, status in (
        (POST + b"content-length: 100000000\r\n\r\n", 413),
        (POST.replace(b"host: p", b"x: y") + b"content-length: 100000000\r\n\r\n", 400),
    ):
        connection = Connection(App(), Limits(max_body_bytes=1000))
        await connection.send(raw)
        assert connection.responses()[0].status == status
        for _ in range(15):
            await connection.send(b"x" * 65536)
            assert not connection.closed
        await connection.send(b"x" * 65536)
        assert connection.closed
        assert connection.take() == b""
        assert connection.loop.armed == []


async def test_a_client_that_neither_reads_nor_leaves_after_a_refusal() -> None:
    connection = Connection(App(), Limits(close_timeout=5))
    await connection.send(b"nonsense\r\n\r\n")
    connection.loop.advance(4.9)
    assert not connection.closed
    connection.loop.advance(0.2)
    assert connection.transport.aborted
    await settle()
    assert connection.loop.armed == []


async def test_a_head_that_does_not_arrive_in_time() -> None:
    connection = Connection(App(), Limits(header_timeout=15))
    await connection.send(b"GET / HT")
    for _ in range(14):
        connection.loop.advance(1)
        await connection.send(b"T")  # slowly is not soon
    assert connection.take() == b""
    connection.loop.advance(1)
    assert_refused(connection, 408, "request_timeout")


async def test_a_connection_without_a_request() -> None:
    connection = Connection(App(), Limits(header_timeout=15))
    connection.loop.advance(15)
    assert connection.closed
    assert connection.take() == b""
    await settle()
    assert connection.loop.armed == []


async def test_a_later_head_has_its_own_time() -> None:
    connection = Connection(App(), Limits(header_timeout=15), timeout_keep_alive=75)
    await connection.send(GET)
    connection.responses()
    connection.loop.advance(70)
    await connection.send(b"GET ")
    connection.loop.advance(14)
    assert not connection.closed
    await connection.send(GET[4:])
    assert connection.responses()[0].status == 200
    await connection.send(b"GET ")
    connection.loop.advance(15)
    assert_refused(connection, 408, "request_timeout")


async def test_a_body_that_stalls() -> None:
    connection = Connection(App(), Limits(client_stall_timeout=10))
    await connection.send(POST + b"content-length: 100\r\n\r\n")
    for _ in range(5):
        connection.loop.advance(9)
        await connection.send(b"x")
    assert connection.take() == b""
    connection.loop.advance(10)
    assert_refused(connection, 408, "request_timeout")


async def test_times_of_zero_are_no_limits() -> None:
    limits = Limits(header_timeout=0, client_stall_timeout=0)
    connection = Connection(App(), limits)
    assert connection.loop.armed == []
    await connection.send(POST)
    await connection.send(b"content-length: 2\r\n\r\n")
    assert connection.loop.armed == []
    await connection.send(b"{}")
    assert connection.responses()[0].status == 200


async def test_uvicorns_own_refusal_is_ours_and_never_written_into_an_answer() -> None:
    connection = Connection(App())
    connection.protocol.send_400_response("Invalid HTTP request received.")
    assert_refused(connection, 400, "invalid_http")
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET)
    connection.protocol.send_400_response("Invalid HTTP request received.")
    assert connection.take() == b""
    held.cycles[0].respond(200, [], b"ok")
    held.release()
    await settle()
    assert connection.responses()[0].headers["connection"] == "close"
    assert connection.closed


async def test_nothing_is_written_to_a_closing_connection() -> None:
    connection = Connection(App())
    await connection.send(b"GET / HT")
    connection.transport.close()
    connection.protocol.send_400_response("x")
    assert connection.take() == b""
