"""An answer for a client to which a 200 event stream has been begun already."""

from __future__ import annotations

import msgspec

from proxy.wire import sse
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import split_object


def as_events(status: int, content_type: bytes, body: bytes) -> bytes:
    """What follows in the stream, in place of an answer of its own status.

    Args:
        status, content_type, body: of the answer. An event stream goes on as it is. Other answers with 200 become one
            event, errors one with OpenAI's member `error`, whatever their shape was.
    """
    if content_type.startswith(b"text/event-stream"):
        return body
    if status == 200:
        return sse.event(_one_line(body))
    return sse.event(_error(status, body))


def _error(status: int, body: bytes) -> bytes:
    try:
        members = split_object(body)
    except MalformedJSON:
        text = body.decode("utf-8", "replace")
        return msgspec.json.encode(
            {"error": {"message": text, "type": "upstream_error", "param": None, "code": str(status)}}
        )
    line = _one_line(body)
    return line if "error" in members else b'{"error": ' + line + b"}"


def _one_line(body: bytes) -> bytes:
    # Line breaks are white space between JSON's tokens, and the end of a line of an event.
    return body.strip().replace(b"\r", b" ").replace(b"\n", b" ")
