"""Which headers pass, as tables."""

import pytest

from proxy.lifecycle.headers import acceptable_request_id, to_client, to_workers
from proxy.upstream.head import ResponseHead

TO_WORKERS = [b"traceparent", b"tracestate", b"x-trtllm-x", b"x-trtllm-start-ts"]
NOT_TO_WORKERS = [
    *(
        b"authorization",
        b"cookie",
        b"host",
        b"connection",
        b"content-length",
        b"content-type",
        b"accept-encoding",
    ),
    *(
        b"x-request-id",
        b"x-trtllm-disagg-auth",
        b"x-trtllm-msgpack",
        b"user-agent",
        b"expect",
        b"x-forwarded-for",
    ),
]
TO_CLIENT = [b"content-type", b"content-encoding", b"retry-after", b"server-timing", b"x-trtllm-a"]
NOT_TO_CLIENT = [
    *(
        b"server",
        b"date",
        b"set-cookie",
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"content-length",
    ),
    *(b"x-request-id", b"access-control-allow-origin", b"upgrade", b"proxy-authenticate"),
]


@pytest.mark.parametrize("name", TO_WORKERS)
def test_to_workers(name: bytes) -> None:
    assert to_workers([(name, b"v")], "id") == b"x-request-id: id\r\n" + name + b": v\r\n"


@pytest.mark.parametrize("name", NOT_TO_WORKERS)
def test_not_to_workers(name: bytes) -> None:
    assert to_workers([(name, b"v")], "id") == b"x-request-id: id\r\n"


def test_to_workers_if_the_operator_says_so() -> None:
    headers = [(b"authorization", b"Bearer x"), (b"cookie", b"c"), (b"x-a", b"1")]
    lines = to_workers(headers, "id", forwarded=frozenset({b"authorization", b"x-a"}), own=b"x-own: 1\r\n")
    assert lines == b"x-request-id: id\r\nauthorization: Bearer x\r\nx-a: 1\r\nx-own: 1\r\n"


def test_what_the_connection_header_names_does_not_pass() -> None:
    headers = [(b"x-trtllm-a", b"1"), (b"x-trtllm-b", b"2"), (b"connection", b"close, X-TRTLLM-A")]
    assert to_workers(headers, "id") == b"x-request-id: id\r\nx-trtllm-b: 2\r\n"


@pytest.mark.parametrize("name", TO_CLIENT)
def test_to_client(name: bytes) -> None:
    others = [(b"x-request-id", b"id")]
    assert to_client(ResponseHead(200, [(name, b"v")], True), others) == [(name, b"v"), *others]
    assert others == [(b"x-request-id", b"id")]


@pytest.mark.parametrize("name", NOT_TO_CLIENT)
def test_not_to_client(name: bytes) -> None:
    assert to_client(ResponseHead(200, [(name, b"v")], True), []) == []


@pytest.mark.parametrize("value", [b"a", b"A-1_b.c", b"x" * 128])
def test_request_ids_that_are_used(value: bytes) -> None:
    assert acceptable_request_id(value)


@pytest.mark.parametrize(
    "value", [b"", b"a b", b"a\nb", b"a\n", b"\xc3\xa9", b"x" * 129, b'a"b', b"a=b", b"a:b"]
)
def test_request_ids_that_are_not(value: bytes) -> None:
    assert not acceptable_request_id(value)
