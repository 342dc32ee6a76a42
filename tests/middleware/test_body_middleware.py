import asyncio
from typing import Any

import pytest

from proxy.errors import BodyTooLarge, ClientGone, EncodedBody, InvalidRequest
from proxy.lifecycle.client import EXTENSION, PlainClient, RelayClient
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.middleware.body import REQUEST_BODY, BodyMiddleware


class Cycle:
    """Our server's side of the extension."""

    disconnected = False

    def __init__(self) -> None:
        self.watched: list[Any] = []

    def watch(self, callback: Any) -> None:
        self.watched.append(callback)


async def run(
    *messages: dict[str, Any], headers: Any = (), extensions: Any = None, max_bytes: int = 100
) -> Any:
    """The body as the endpoint sees it, and the record."""
    seen = []
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope[REQUEST_BODY])

    scope = {
        "type": "http",
        "headers": list(headers),
        RECORD: RequestRecord("id", 0.0),
        "extensions": extensions,
    }
    await BodyMiddleware(app, max_bytes=max_bytes)(scope, receive, None)  # type: ignore[arg-type]
    return seen[0], scope[RECORD]


def part(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


async def test_one_part() -> None:
    body, record = await run(part(b'{"a": 1, "priority": 2}'))
    assert {name: bytes(value) for name, value in body.members.items()} == {"a": b"1", "priority": b"2"}
    assert bytes(body.priority) == b"2"
    assert isinstance(body.client, PlainClient)
    assert record.body_size == 23


async def test_many_parts() -> None:
    body, record = await run(
        part(b'{"a"', more=True), part(b"", more=True), {"type": "http.request", "body": b": 1}"}
    )
    assert bytes(body.members["a"]) == b"1"
    assert body.priority is None
    assert record.body_size == 8


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{", b'{"a":}', b"{} x", b"null"])
async def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await run(part(body))
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


async def test_too_large_is_noticed_before_the_rest_is_read() -> None:
    assert (await run(part(b'{"a":"' + b"x" * 92 + b'"}')))[1].body_size == 100
    with pytest.raises(BodyTooLarge):
        await run(part(b"x" * 60, more=True), part(b"x" * 41, more=True))


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"zstd", b"deflate, gzip", b"x"])
async def test_encoded_bodies(coding: bytes) -> None:
    with pytest.raises(EncodedBody):
        await run(headers=[(b"content-encoding", coding)])


async def test_identity_is_no_coding() -> None:
    await run(part(b"{}"), headers=[(b"content-encoding", b"Identity")])


async def test_a_client_that_leaves_before_its_body_is_complete() -> None:
    with pytest.raises(ClientGone):
        await run(part(b"{", more=True), {"type": "http.disconnect"})


async def test_on_our_server_the_extension_is_used() -> None:
    cycle = Cycle()
    body, _ = await run(part(b"{}"), extensions={EXTENSION: cycle})
    assert isinstance(body.client, RelayClient)
    assert cycle.watched == [None]  # the request is over


async def test_no_listener_stays_behind() -> None:
    async def receive() -> dict[str, Any]:
        if not received:
            received.append(True)
            return part(b"{}")
        await asyncio.Event().wait()
        raise AssertionError

    received: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[REQUEST_BODY].client.watch(lambda: None)
        await asyncio.sleep(0)
        raise ValueError("a bug")

    scope = {"type": "http", "headers": [], RECORD: RequestRecord("id", 0.0)}
    with pytest.raises(ValueError, match="a bug"):
        await BodyMiddleware(app, max_bytes=10)(scope, receive, None)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
