"""Answers through ASGI's `send` and through the extension's `respond`."""

import asyncio
import logging
from typing import Any

import pytest
from fake_downstream import GET, App, Connection, Held, answer, parse, settle

from proxy.downstream.limits import Limits

HEAD = GET.replace(b"GET", b"HEAD")
OLD = GET.replace(b"1.1", b"1.0")


def sending(*messages: dict[str, Any]) -> App:
    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return App(behave)


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_known_length() -> None:
    connection = Connection(
        sending(start(201, (b"content-length", b"4")), body(b"ab", more=True), body(b"cd"))
    )
    await connection.send(GET)
    assert connection.take() == b"HTTP/1.1 201 Created\r\ndate: today\r\ncontent-length: 4\r\n\r\nabcd"
    assert not connection.closed


async def test_unknown_length_is_chunked_each_piece_at_once() -> None:
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET)
    send = held.cycles[0].send
    await send(start())
    assert connection.take() == b""  # the head waits for the first piece
    await send(body(b"", more=True))
    assert connection.take() == b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"
    await send(body(b"abc", more=True))
    assert connection.take() == b"3\r\nabc\r\n"
    await send(body(b"de"))
    assert connection.take() == b"2\r\nde\r\n0\r\n\r\n"
    held.release()
    await settle()
    assert not connection.closed


async def test_unknown_length_for_http_1_0_ends_with_the_connection() -> None:
    connection = Connection(sending(start(), body(b"abc", more=True), body(b"de")))
    await connection.send(OLD)
    assert connection.take() == b"HTTP/1.1 200 OK\r\ndate: today\r\nconnection: close\r\n\r\nabcde"
    assert connection.closed


async def test_the_framing_is_not_the_applications() -> None:
    connection = Connection(sending(start(200, (b"transfer-encoding", b"chunked")), body(b"abc")))
    await connection.send(GET)
    assert connection.responses()[0].body == b"abc"


async def test_an_answer_that_says_close() -> None:
    connection = Connection(sending(start(200, (b"connection", b"Close"), (b"content-length", b"0")), body()))
    await connection.send(GET)
    assert connection.responses()[0].headers == {
        "date": "today",
        "content-length": "0",
        "connection": "close",
    }
    assert connection.closed


@pytest.mark.parametrize("headers", [[(b"content-length", b"3")], []])
async def test_head_requests_get_no_body(headers: list[tuple[bytes, bytes]]) -> None:
    connection = Connection(sending(start(200, *headers), body(b"abc")))
    await connection.send(HEAD)
    assert connection.take().endswith(b"\r\n\r\n")
    assert not connection.closed
    await connection.send(HEAD)
    assert connection.take().startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("request_line", [GET, OLD])
async def test_statuses_without_a_body(status: int, request_line: bytes) -> None:
    connection = Connection(sending(start(status), body()))
    await connection.send(request_line)
    raw = connection.take()
    assert raw.startswith(b"HTTP/1.1 %d" % status)
    assert raw.endswith(b"\r\n\r\n")
    assert b"chunked" not in raw
    assert b"content-length" not in raw
    assert connection.closed is (request_line is OLD)


MISUSE: dict[str, list[dict[str, Any]]] = {
    "body first": [body(b"x")],
    "unknown message": [{"type": "http.response.push"}],
    "too long": [start(200, (b"content-length", b"2")), body(b"abc")],
    "too short": [start(200, (b"content-length", b"4")), body(b"abc")],
    "bad length": [start(200, (b"content-length", b"x")), body(b"abc")],
    "no such status": [start(99), body()],
    "started twice": [start(), start()],
    "nothing": [],
    "started only": [start()],
}


@pytest.mark.parametrize("name", MISUSE)
async def test_a_mistake_before_anything_was_written_is_a_500(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Connection(sending(*MISUSE[name]))
    await connection.send(GET)
    (response,) = connection.responses()
    assert response.status == 500
    assert response.headers["x-disagg-proxy-error"] == "proxy;internal_error"
    assert response.headers["connection"] == "close"
    assert connection.closed
    assert connection.tasks == 0
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


@pytest.mark.parametrize("after", ["raise", "return", "too long", "twice"])
async def test_a_mistake_after_that_closes_the_connection(
    after: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send(start(200, (b"content-length", b"10")) if after == "too long" else start())
        await send(body(b"abc", more=True))
        if after == "raise":
            raise ValueError("a bug")
        if after == "too long":
            await send(body(b"0123456789"))
        if after == "twice":
            await send(start())

    connection = Connection(App(behave))
    await connection.send(GET)
    raw = connection.take()
    assert raw.count(b"HTTP/1.1") == 1
    assert not raw.endswith(b"0\r\n\r\n")
    assert connection.closed
    await settle()
    assert connection.state.connections == set()
    assert connection.loop.armed == []


async def test_an_exception_after_the_answer_is_logged_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answer(send, b"ok")
        raise ValueError("a bug")

    connection = Connection(App(behave))
    await connection.send(GET)
    assert connection.responses()[0].status == 200
    assert not connection.closed
    assert "a bug" in caplog.text


async def test_sending_behind_the_end_is_an_error() -> None:
    seen = []

    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await answer(send, b"ok")
        for message in (start(), body(b"x")):
            with pytest.raises(RuntimeError) as caught:
                await send(message)
            seen.append(str(caught.value))

    connection = Connection(App(behave))
    await connection.send(GET)
    assert len(connection.responses()) == 1
    assert len(seen) == 2


async def test_receive_after_the_answer_says_disconnect() -> None:
    seen = []

    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        waiting = asyncio.create_task(_second(receive))
        await answer(send, b"ok")
        seen.append(await waiting)
        seen.append(await receive())

    async def _second(receive: Any) -> Any:
        await receive()
        return await receive()

    connection = Connection(App(behave))
    await connection.send(GET)
    assert seen == [{"type": "http.disconnect"}] * 2


async def test_a_cancelled_receive_leaves_the_next_one_intact() -> None:
    seen = []

    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receive(), 0)
        seen.append(await receive())

    connection = Connection(App(behave))
    await connection.send(GET)
    await asyncio.sleep(0.01)
    connection.transport.lose()
    await settle()
    assert seen == [{"type": "http.disconnect"}]


async def test_send_waits_for_a_slow_client_and_ends_with_it() -> None:
    progress: list[Any] = []

    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send(start())
        try:
            for number in range(20):
                await send(body(b"x" * 50_000, more=True))
                progress.append(number)
        except OSError as error:
            progress.append(error)

    connection = Connection(App(behave))
    connection.transport.stall()
    await connection.send(GET)
    assert progress == [0, 1]
    connection.transport.drain()
    connection.transport.stall()
    await settle()
    assert progress == [0, 1, 2, 3]
    connection.transport.lose()
    await settle()
    assert progress[:4] == [0, 1, 2, 3]
    assert isinstance(progress[4], OSError)
    assert connection.tasks == 0


@pytest.mark.parametrize("timeout", [0, 30])
async def test_send_does_not_wait_for_ever_for_a_client_that_reads_nothing(timeout: float) -> None:
    failed: list[OSError] = []

    async def behave(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send(start())
        try:
            for _ in range(20):
                await send(body(b"x" * 50_000, more=True))
        except OSError as error:
            failed.append(error)

    connection = Connection(App(behave), Limits(client_stall_timeout=timeout))
    connection.transport.stall()
    await connection.send(GET)
    connection.loop.advance(29)
    await settle()
    assert not connection.transport.aborted
    connection.loop.advance(2)
    await settle()
    assert connection.transport.aborted is bool(timeout)
    connection.transport.lose()
    await settle()
    assert len(failed) == 1
    assert connection.tasks == 0
    assert connection.loop.armed == []


async def test_respond() -> None:
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET)
    held.cycles[0].respond(503, [(b"retry-after", b"1")], b"busy")
    assert connection.take() == (
        b"HTTP/1.1 503 Service Unavailable\r\ndate: today\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy"
    )
    held.release()
    await settle()
    assert connection.tasks == 0
    assert not connection.closed


@pytest.mark.parametrize(
    ("request_line", "status", "end"),
    [
        (HEAD, 200, b"content-length: 2\r\n\r\n"),
        (GET, 304, b"content-length: 2\r\n\r\n"),
        (GET, 204, b"today\r\n\r\n"),
        (OLD, 200, b"connection: close\r\n\r\n{}"),
    ],
)
async def test_respond_in_special_cases(request_line: bytes, status: int, end: bytes) -> None:
    held = Held()
    connection = Connection(App(held))
    await connection.send(request_line)
    held.cycles[0].respond(status, [], b"{}")
    assert connection.take().endswith(end)
    held.release()
    await settle()


async def test_respond_to_a_client_that_left_is_silent() -> None:
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET)
    connection.transport.lose()
    held.cycles[0].respond(200, [], b"{}")
    held.release()
    await settle()
    assert connection.take() == b""


async def test_an_answer_that_begins_before_its_body_is_known() -> None:
    held = Held()
    for request_line in (GET, OLD):
        connection = Connection(App(held))
        await connection.send(request_line)
        cycle = held.cycles[-1]
        cycle.begin(200, [(b"content-type", b"text/event-stream")])
        begun = connection.take()
        cycle.add(b": wait\n\n")
        cycle.add(b"data: 1\n\n", last=True)
        (response,) = parse(begun + connection.take())
        assert response.body == b": wait\n\ndata: 1\n\n"
        held.release()
        await settle()
        assert connection.closed is (request_line is OLD)
    connection = Connection(App(held))
    await connection.send(GET)
    held.cycles[-1].begin(200, [])
    connection.transport.lose()
    held.cycles[-1].add(b"x")
    held.release()


async def test_a_cancelled_request_is_answered() -> None:
    """At the end of a drain."""
    held = Held()
    connection = Connection(App(held))
    await connection.send(GET)
    for task in list(connection.state.tasks):
        task.cancel()
    await settle()
    (response,) = connection.responses()
    assert (response.status, response.headers["x-disagg-proxy-error"]) == (503, "proxy;shutting_down")
    assert connection.closed


async def test_the_date_is_encoded_once_for_each_list() -> None:
    connection = Connection(App())
    await connection.send(GET)
    lines = connection.protocol.default_header_lines()
    assert connection.protocol.default_header_lines() is lines
    connection.state.default_headers = [(b"date", b"tomorrow"), (b"server", b"x")]
    await connection.send(GET)
    assert connection.responses()[1].headers["date"] == "tomorrow"
