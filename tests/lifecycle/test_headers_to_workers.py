"""Which header lines the legs carry."""

import pytest

from proxy.lifecycle.headers import to_workers

TRACE = (b"traceparent", b"00-aa")


def lines(headers, **options):
    encoded = to_workers(headers, "id", **options).decode()
    assert encoded.endswith("\r\n")
    return encoded.split("\r\n")[:-1]


def test_request_id_trace_and_the_workers_own():
    headers = [TRACE, (b"tracestate", b"x=y"), (b"x-trtllm-a", b"1"), (b"host", b"h"), (b"accept", b"*/*")]
    assert lines(headers) == ["x-request-id: id", "traceparent: 00-aa", "tracestate: x=y", "x-trtllm-a: 1"]


@pytest.mark.parametrize("name", [b"authorization", b"cookie", b"x-trtllm-disagg-auth", b"x-trtllm-msgpack"])
def test_what_never_passes_by_itself(name):
    assert lines([(name, b"v")]) == ["x-request-id: id"]


def test_what_is_asked_for_and_the_proxys_own():
    headers = [(b"authorization", b"v"), (b"cookie", b"c")]
    own = b"authorization: Bearer k\r\n"
    assert lines(headers, forwarded=frozenset({b"cookie"}), own=own) == [
        "x-request-id: id",
        "cookie: c",
        "authorization: Bearer k",
    ]


@pytest.mark.parametrize("connection", [b"Keep-Alive, TRACEPARENT", b"traceparent", b"close , traceparent,x"])
def test_what_the_connection_header_names_is_about_that_connection(connection):
    """RFC 9110 §7.6.1."""
    assert lines([TRACE, (b"connection", connection)]) == ["x-request-id: id"]
    assert lines([(b"connection", connection), TRACE]) == ["x-request-id: id"]


def test_the_proxys_own_lines_are_not_the_clients_to_remove():
    headers = [(b"connection", b"x-request-id, authorization")]
    assert lines(headers, own=b"authorization: Bearer k\r\n") == [
        "x-request-id: id",
        "authorization: Bearer k",
    ]
