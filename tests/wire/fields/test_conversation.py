import json
from typing import Any

import pytest

from proxy.wire.fields.conversation import BODY_MEMBERS, HEADERS, conversation_id, conversation_params
from proxy.wire.members import split_object

ORDER = [
    "x-session-id", "x-correlation-id", "x-session-affinity", "x-multi-turn-session-id", "x-smg-routing-key",
    "x-openwebui-chat-id", "session_id", "prompt_cache_key", "promptCacheKey",
]  # fmt: skip


def found(body: dict[str, Any], *headers: tuple[bytes, bytes]) -> str:
    return conversation_id(split_object(json.dumps(body).encode()), headers)


def test_the_order() -> None:
    assert [name.decode() for name in HEADERS] + list(BODY_MEMBERS) == ORDER
    headers = [(name, b"of " + name) for name in HEADERS]
    body = {name: f"of {name}" for name in BODY_MEMBERS}
    assert found({**body, "conversation_params": {"conversation_id": "own"}}, *headers) == "own"
    for at, name in enumerate(ORDER):
        left = [(header, value) for header, value in reversed(headers) if header.decode() in ORDER[at:]]
        rest = {member: value for member, value in body.items() if member in ORDER[at:]}
        assert found(rest, *left) == f"of {name}"


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({}, (), ""),
        ({"conversation_params": {"conversation_id": 7}}, (), "7"),
        ({"conversation_params": {"conversation_id": "  "}}, ((b"x-session-id", b"h"),), "h"),
        ({"conversation_params": {"conversation_id": ["x"]}}, ((b"x-session-id", b"h"),), "h"),
        ({"conversation_params": "x"}, ((b"x-session-id", b"h"),), "h"),
        ({"conversation_params": None}, ((b"x-session-id", b" h "),), "h"),
        ({"session_id": "s"}, ((b"x-session-id", b"  "), (b"x-correlation-id", b"")), "s"),
        ({"session_id": None, "prompt_cache_key": "k"}, (), "k"),
        ({"session_id": {"a": 1}, "prompt_cache_key": 5}, (), "5"),
        ({}, ((b"cookie", b"x"), (b"x-session-id", "\u00e9".encode("latin-1"))), "\u00e9"),
    ],
)
def test_values(body: dict[str, Any], headers: Any, expected: str) -> None:
    assert found(body, *headers) == expected


def test_params() -> None:
    assert bytes(conversation_params('a"b')) == b'{"conversation_id":"a\\"b"}'
