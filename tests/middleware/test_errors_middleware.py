import json
import logging

import pytest

from proxy.errors import ClientGone, InvalidRequest, NotReady
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.middleware.errors import ErrorsMiddleware
from proxy.wire.errors import InvalidField


class World:
    def __init__(self, error: BaseException | None, *, before: tuple = (), gone: bool = False) -> None:
        self.error = error
        self.before = before
        self.gone = gone
        self.sent: list[dict] = []
        self.record = RequestRecord("req-1", 0.0)

    async def run(self) -> "World":
        await ErrorsMiddleware(self._app)(
            {"type": "http", "headers": [], RECORD: self.record}, None, self._send
        )
        return self

    async def _app(self, scope, receive, send) -> None:
        for message in self.before:
            await send(message)
        if self.error is not None:
            raise self.error

    async def _send(self, message) -> None:
        if self.gone:
            raise OSError("the client has disconnected")
        if self.sent and message["type"] == "http.response.start":
            raise RuntimeError("the answer has been started already")
        self.sent.append(message)

    @property
    def answer(self) -> tuple[int, dict[bytes, bytes], dict]:
        start, body = self.sent
        headers = dict(start["headers"])
        assert headers[b"content-length"] == b"%d" % len(body["body"])
        assert body["more_body"] is False
        return start["status"], headers, json.loads(body["body"])["error"]


async def test_nothing_happens() -> None:
    world = await World(None, before=({"type": "http.response.start", "status": 200},)).run()
    assert len(world.sent) == 1
    assert world.record.error is None


async def test_an_error_of_the_proxy() -> None:
    world = await World(NotReady("no worker", code="no_context_worker")).run()
    status, headers, error = world.answer
    assert status == 503
    assert headers[b"retry-after"] == b"1"
    assert headers[b"x-request-id"] == b"req-1"
    assert headers[b"x-disagg-proxy-error"] == b"proxy;no_context_worker"
    assert error["code"] == "no_context_worker"
    assert (world.record.status, world.record.outcome) == (503, "error")


async def test_an_invalid_field() -> None:
    world = await World(InvalidField("model", "model is required", code="missing_required_parameter")).run()
    status, _, error = world.answer
    assert (status, error["param"], error["code"]) == (400, "model", "missing_required_parameter")
    assert error["type"] == "invalid_request_error"


async def test_a_bug_is_logged_and_its_text_stays_here(caplog: pytest.LogCaptureFixture) -> None:
    world = await World(ValueError("10.0.0.7 secret")).run()
    status, _, error = world.answer
    assert (status, error["message"], error["code"]) == (500, "the proxy failed", "internal_error")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "req-1" in record.getMessage()
    assert "secret" in caplog.text


async def test_a_client_that_left_is_not_answered() -> None:
    world = await World(ClientGone("the client left")).run()
    assert world.sent == []
    assert (world.record.status, world.record.outcome) == (499, "client_closed")


async def test_a_client_that_leaves_as_it_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    world = await World(InvalidRequest("no"), gone=True).run()
    assert (world.record.status, world.record.outcome) == (499, "client_closed")
    assert caplog.records == []


async def test_an_error_behind_the_start_of_an_answer_is_the_servers_to_end() -> None:
    world = World(NotReady("no"), before=({"type": "http.response.start", "status": 200},))
    with pytest.raises(RuntimeError):
        await world.run()


async def test_cancellation_passes() -> None:
    import asyncio

    with pytest.raises(asyncio.CancelledError):
        await World(asyncio.CancelledError()).run()
