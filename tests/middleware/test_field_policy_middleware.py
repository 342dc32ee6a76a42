"""The middleware: policy looked up per request, conversation and request id taken from where clients put them."""

import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from proxy.errors import InvalidRequest
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.middleware.body import REQUEST_BODY, RequestBody
from proxy.middleware.field_policy import FieldPolicyMiddleware
from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.members import split_object
from proxy.wire.versions import WorkerVersion

JUL = WorkerVersion.JUL


class Run:
    """What an endpoint behind the middleware sees."""

    def __init__(self, version: WorkerVersion = JUL, allow_template: bool = False, **options: Any) -> None:
        self.version = version
        self.options = Options(**options)
        self.middleware = FieldPolicyMiddleware(
            self._endpoint, policy=self._policy, allow_chat_template=allow_template
        )

    def _policy(self) -> FieldPolicy:
        return FieldPolicy(ACCEPTED[self.version], chat=True, options=self.options)

    async def _endpoint(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope

    async def __call__(self, body: dict[str, Any], *headers: tuple[bytes, bytes]) -> SimpleNamespace:
        members = split_object(msgspec.json.encode(body))
        record = RequestRecord("made-here", 0.0)
        scope = {
            "headers": list(headers),
            REQUEST_BODY: RequestBody(members, SimpleNamespace()),  # type: ignore[arg-type]
            RECORD: record,
        }
        await self.middleware(scope, None, None)  # type: ignore[arg-type]
        seen = self.scope[REQUEST_BODY]
        sent = {name: msgspec.json.decode(value) for name, value in seen.members.items()}
        return SimpleNamespace(
            sent=sent, conversation=seen.conversation, dropped=record.dropped, id=record.request_id
        )


async def test_the_policy_of_the_moment() -> None:
    run = Run()
    with pytest.raises(InvalidField):
        await run({"thinking": {"type": "enabled"}})
    run.version = WorkerVersion.NEW
    assert (await run({"thinking": {"type": "enabled"}})).sent == {"thinking": {"type": "enabled"}}


@pytest.mark.parametrize("value", ["{{ x }}", None])
async def test_chat_template(value: str | None) -> None:
    if value is None:
        assert (await Run()({"chat_template": None})).sent == {}
        return
    with pytest.raises(InvalidRequest, match="allow_request_chat_template"):
        await Run()({"chat_template": value})
    with pytest.raises(InvalidRequest):
        await Run()({"extra_body": {"chat_template": value}})
    assert (await Run(allow_template=True)({"chat_template": value})).sent == {"chat_template": value}


class TestConversation:
    HEADER = (b"x-session-id", b"s")

    @pytest.mark.parametrize("dialect", ["trtllm", "nemo_rl"])
    async def test_from_a_header(self, dialect: str) -> None:
        found = await Run(dialect=dialect)({"seed": 1}, self.HEADER)
        assert found.sent == {"seed": 1, "conversation_params": {"conversation_id": "s"}}
        assert found.conversation == "s"

    async def test_from_the_body(self) -> None:
        found = await Run()({"session_id": "s"})
        assert found.sent == {"conversation_params": {"conversation_id": "s"}}
        assert found.dropped == ("session_id",)

    async def test_the_clients_own_params_win(self) -> None:
        own = {"conversation_params": {"conversation_id": "own"}}
        found = await Run()(own, self.HEADER)
        assert (found.sent, found.conversation) == (own, "own")

    async def test_for_workers_that_do_not_know_the_member(self) -> None:
        found = await Run(WorkerVersion.OLD)({}, self.HEADER)
        assert (found.sent, found.conversation) == ({}, "s")
        found = await Run(WorkerVersion.OLD)({"conversation_params": {"conversation_id": "own"}})
        assert (found.sent, found.conversation) == ({}, "own")

    async def test_nothing_is_added_for_others(self) -> None:
        found = await Run(dialect="passthrough")({"session_id": "s"}, self.HEADER)
        assert (found.sent, found.conversation) == ({"session_id": "s"}, "")
        assert (await Run()({})).sent == {}


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({"request_id": "r-1"}, (), "r-1"),
        ({"rid": "r-2"}, (), "r-2"),
        ({"request_id": "r-1"}, ((b"x-request-id", b"h"),), "made-here"),
        ({"request_id": "a b"}, (), "made-here"),
        ({"request_id": 5}, (), "made-here"),
        ({"rid": ["a"]}, (), "made-here"),
        ({}, (), "made-here"),
    ],
)
async def test_a_request_id_in_the_body(body: dict[str, Any], headers: Any, expected: str) -> None:
    assert (await Run()(body, *headers)).id == expected


async def test_hand_off_members_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "proxy")
    run = Run()
    for _ in range(3):
        assert (await run({"kv_transfer_params": {}, "store": True})).dropped == (
            "kv_transfer_params",
            "store",
        )
    assert [record.getMessage() for record in caplog.records] == [
        "clients send the field kv_transfer_params, which is the proxy's own business: it is dropped"
    ]
