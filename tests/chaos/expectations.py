"""What a client gets for every fault of a worker, as one table.

Each fault is switched on for all workers of one role and stays on, so that a retry meets it again. The rules behind
the rows:

1. A complete HTTP answer of a worker keeps its status, content type and bytes, 5xx included, once the retries are used
   up.
2. 502 is for no answer, a broken one, `null` and a missing hand-off; 504 for a deadline; both with the leg as source.
3. A context leg is sent again (other worker, new id) after a failure before the first byte of its answer and after
   408, 429 and 5xx; not after a deadline, other statuses, and answers that break off or make no sense.
4. A generation leg is sent to another worker as long as nobody can have taken the hand-off: no connection, 429, 503.
   After other failures before the client has got anything the whole request is done once more, context leg included.
   Deadlines and 4xx are final.
5. Nothing is sent to the client before the generation worker's status is known. Once a stream has begun, an error
   is one more event, without [DONE], and the message ends; if the bytes sent end inside an event, the connection is cut
   without that, and counted. No other close comes unannounced, since clients may reuse the connection at once.
6. Whatever the worker sends behind [DONE] is passed on.
7. A hand-off that nobody took stays with the context worker until it expires there, and is counted: `failed` when
   a last leg for nobody failed too, `lost` when it is open whether a worker has taken it.
"""

import json
from typing import Any, NamedTuple

REFUSAL = json.dumps({"error": "wörker says no"}, ensure_ascii=False, indent=1)
HTML = "<html><body>\n<h1>Bad gateway</h1> ß\n</body></html>\n"


class Works(NamedTuple):
    """200 with the text that was asked for."""


class Passes(NamedTuple):
    """The worker's answer, status and bytes."""

    status: int
    body: str
    content_type: str


class Error(NamedTuple):
    """An answer of the proxy's own."""

    status: int
    source: str
    codes: tuple[str, ...]


class ErrorEvent(NamedTuple):
    """200, so many events of the worker, then one with the error, then the end of the message."""

    code: str
    events: int


class Cut(NamedTuple):
    """200, some bytes, and the connection ends inside the message."""


class Verbatim(NamedTuple):
    """200 and a whole stream that ends with these bytes of the worker."""

    end: str


class JSONInstead(NamedTuple):
    """200 with a complete JSON answer to a client that wanted a stream."""


class Truncated(NamedTuple):
    """200 with the half of a JSON answer that the worker sent as a whole one."""


Outcome = Works | Passes | Error | ErrorEvent | Cut | Verbatim | JSONInstead | Truncated


class Row(NamedTuple):
    """One fault.

    Attributes:
        leg: the role whose workers have it.
        fault: switches of the simulated workers.
        whole, stream: what a client gets that wants the answer in one piece, or as events.
        legs: how many context and generation legs the workers read, (whole, stream); None: it varies.
        left: hand-offs that nobody takes, (whole, stream); None: one for each context leg.
        orphans: hand-offs that are counted as orphaned, by outcome, (whole, stream); None: `lost` or `failed`, as many
            as are left.
        headers: of the client's request.
    """

    leg: str
    fault: dict[str, Any]
    whole: Outcome
    stream: Outcome
    legs: tuple[tuple[int, int] | None, tuple[int, int] | None] = ((1, 1), (1, 1))
    left: tuple[int | None, int | None] = (0, 0)
    orphans: tuple[dict[str, int] | None, dict[str, int] | None] = ({}, {})
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


def _status(status: int, body: str = REFUSAL, content_type: str = "application/json; x=y") -> dict[str, Any]:
    return {"kind": "status", "status": status, "body": body, "content_type": content_type}


def _passes(status: int, body: str = REFUSAL, content_type: str = "application/json; x=y") -> Passes:
    return Passes(status, body, content_type)


WORKS = Works()
DONE = "data: [DONE]\n\n"


def _error(source: str, status: int, *codes: str) -> Error:
    return Error(status, source, codes)


UNREACHABLE = _error("ctx", 502, "worker_unreachable")
DISCONNECTED = _error("ctx", 502, "worker_disconnected")
# A connection that is reset as soon as it is accepted is noticed while it is made, or just after.
EITHER = _error("ctx", 502, "worker_unreachable", "worker_disconnected")
BROKEN = _error("ctx", 502, "bad_worker_response")
LATE = _error("ctx", 504, "context_timeout")
GEN_UNREACHABLE = _error("gen", 502, "worker_unreachable")
GEN_DISCONNECTED = _error("gen", 502, "worker_disconnected")
GEN_EITHER = _error("gen", 502, "worker_unreachable", "worker_disconnected")
GEN_BROKEN = _error("gen", 502, "bad_worker_response")
GEN_LATE = _error("gen", 504, "first_byte_timeout")

_AFTER = 3
_CUT = {"kind": "cut", "after_events": _AFTER}
_CUT_EVENT = ErrorEvent("worker_disconnected", _AFTER)


def _context(fault: dict[str, Any], outcome: Outcome, legs: int, left: int = 0, lost: int = 0) -> Row:
    """A fault of context workers: the generation leg comes only if there is none."""
    seen = (legs, 1 if outcome is WORKS else 0)
    orphans = {"lost": lost} if lost else {}
    return Row("context", fault, outcome, outcome, (seen, seen), (left, left), (orphans, orphans))


def _final(fault: dict[str, Any], outcome: Outcome, legs: int = 1) -> Row:
    """A fault of generation workers after which nothing is tried again."""
    works = outcome is WORKS
    left, orphans = (0, {}) if works else (1, {"lost": 1})
    return Row("generation", fault, outcome, outcome, ((1, legs),) * 2, (left, left), (orphans, orphans))


def _moves(fault: dict[str, Any], outcome: Outcome, legs: int) -> Row:
    """A fault of generation workers that leaves the hand-off where it is; the last leg is for nobody."""
    return Row("generation", fault, outcome, outcome, ((1, legs),) * 2, (1, 1), ({"failed": 1},) * 2)


def _again(fault: dict[str, Any], outcome: Outcome, left: int = 2) -> Row:
    """A fault of generation workers after which the whole request is done once more."""
    return Row("generation", fault, outcome, outcome, ((2, 2),) * 2, (left, left), ({"lost": 2},) * 2)


def _breaks(fault: dict[str, Any], stream: Outcome) -> Row:
    """A fault within the answers of generation workers: an answer in one piece is asked for once more."""
    return Row("generation", fault, GEN_DISCONNECTED, stream, ((2, 2), (1, 1)), (0, 0), ({"lost": 2}, {}))


def _generation(fault: dict[str, Any], whole: Outcome, stream: Outcome, lost: int = 0, **more: Any) -> Row:
    """Any other fault of generation workers; ``lost``: counted so though taken, for a whole answer."""
    return Row("generation", fault, whole, stream, orphans=({"lost": lost} if lost else {}, {}), **more)


# fmt: off
MATRIX: dict[str, Row] = {
    # Context leg: no answer
    "ctx-refuse": _context({"kind": "refuse"}, UNREACHABLE, 0),
    "ctx-accept-and-hang": _context({"kind": "accept_hang"}, LATE, 0),
    "ctx-accept-and-reset": _context({"kind": "accept_reset"}, EITHER, 0),
    "ctx-hang": _context({"kind": "hang"}, LATE, 1),
    "ctx-reset": _context({"kind": "reset"}, DISCONNECTED, 2),
    "ctx-disconnect": _context({"kind": "disconnect"}, DISCONNECTED, 2),
    # Context leg: an answer that is no success
    "ctx-400": _context(_status(400), _passes(400), 1),
    "ctx-404": _context(_status(404, '{"detail":"Not Found"}', "application/json"),
                        _passes(404, '{"detail":"Not Found"}', "application/json"), 1),
    "ctx-408": _context(_status(408), _passes(408), 2),
    "ctx-413": _context(_status(413, HTML, "text/html"), _passes(413, HTML, "text/html"), 1),
    "ctx-422": _context(_status(422, "", "text/plain"), _passes(422, "", "text/plain"), 1),
    "ctx-429": _context(_status(429), _passes(429), 2),
    "ctx-500": _context(_status(500, "Internal Server Error", "text/plain; charset=utf-8"),
                        _passes(500, "Internal Server Error", "text/plain; charset=utf-8"), 2),
    "ctx-503": _context(_status(503, HTML, "text/html"), _passes(503, HTML, "text/html"), 2),
    # Context leg: broken answers
    "ctx-garbage": _context({"kind": "garbage"}, BROKEN, 2),
    "ctx-null": _context({"kind": "null_body"}, BROKEN, 2, lost=2),
    "ctx-truncated-json": _context({"kind": "truncated_json"}, BROKEN, 2, 2, 2),
    "ctx-html": _context(_status(200, HTML, "text/html"), BROKEN, 2, lost=2),
    "ctx-no-handoff": _context({"kind": "missing_handoff", "handoff": "absent"}, BROKEN, 2, 2, 2),
    "ctx-null-handoff": _context({"kind": "missing_handoff", "handoff": "null"}, BROKEN, 2, 2, 2),
    "ctx-no-ids-in-handoff": _context({"kind": "missing_handoff", "handoff": "null_ids"}, BROKEN, 2, 2, 2),
    "ctx-cut": _context({"kind": "cut"}, DISCONNECTED, 2, 2, 2),
    "ctx-cut-reset": _context({"kind": "cut", "with_reset": True}, DISCONNECTED, 2, 2, 2),
    "ctx-stall": _context({"kind": "stall"}, LATE, 1, 1),
    "ctx-oversized-headers": _context({"kind": "oversized_headers", "size": 140_000}, BROKEN, 2, 2),
    # Context leg: unusual but sound
    "ctx-no-token-ids": _context({"kind": "missing_ids"}, WORKS, 1),
    "ctx-slow": _context({"kind": "slow_first_byte", "seconds": 0.1}, WORKS, 1),
    "ctx-1xx": _context({"kind": "informational"}, WORKS, 1),
    "ctx-100": _context({"kind": "informational", "status": 100}, WORKS, 1),
    "ctx-large-headers": _context({"kind": "oversized_headers", "size": 100_000}, WORKS, 1),
    "ctx-chunk-extensions": _context({"kind": "chunk_extensions"}, WORKS, 1),
    "ctx-trailers": _context({"kind": "trailers"}, WORKS, 1),
    "ctx-close": _context({"kind": "close"}, WORKS, 1),
    "ctx-close-silently": _context({"kind": "close_silently"}, WORKS, 1),
    "ctx-unsolicited": _context({"kind": "unsolicited"}, WORKS, 1),
    # Generation leg: no answer
    "gen-refuse": _moves({"kind": "refuse"}, GEN_UNREACHABLE, 0),
    "gen-accept-and-hang": _final({"kind": "accept_hang"}, GEN_LATE, 0),
    "gen-accept-and-reset": Row("generation", {"kind": "accept_reset"}, GEN_EITHER, GEN_EITHER,
                                (None, None), (None, None), (None, None)),
    "gen-hang": _final({"kind": "hang"}, GEN_LATE),
    "gen-reset": _again({"kind": "reset"}, GEN_DISCONNECTED),
    "gen-disconnect": _again({"kind": "disconnect"}, GEN_DISCONNECTED),
    # Generation leg: an answer that is no success
    "gen-400": _final(_status(400), _passes(400)),
    "gen-404": _final(_status(404, '{"detail":"Not Found"}', "application/json"),
                           _passes(404, '{"detail":"Not Found"}', "application/json")),
    "gen-408": _again(_status(408), _passes(408)),
    "gen-413": _final(_status(413, HTML, "text/html"), _passes(413, HTML, "text/html")),
    "gen-422": _final(_status(422, "", "text/plain"), _passes(422, "", "text/plain")),
    "gen-429": _moves(_status(429), _passes(429), 2),
    "gen-500": _again(_status(500, "Internal Server Error", "text/plain; charset=utf-8"),
                           _passes(500, "Internal Server Error", "text/plain; charset=utf-8")),
    "gen-503": _moves(_status(503, HTML, "text/html"), _passes(503, HTML, "text/html"), 2),
    # Generation leg: broken answers
    "gen-garbage": _again({"kind": "garbage"}, GEN_BROKEN),
    "gen-null": _again({"kind": "null_body"}, GEN_BROKEN),
    "gen-oversized-headers": _again({"kind": "oversized_headers", "size": 140_000}, GEN_BROKEN, left=0),
    "gen-html": _generation(_status(200, HTML, "text/html"), _passes(200, HTML, "text/html"),
                            _passes(200, HTML, "text/html"), left=(1, 1)),
    # Half of the JSON text under a length that says so is a complete answer; streams have no such fault.
    "gen-truncated-json": _generation({"kind": "truncated_json"}, Truncated(), WORKS),
    "gen-cut": _breaks(_CUT, _CUT_EVENT),
    "gen-cut-at-once": _breaks({**_CUT, "after_events": 0}, ErrorEvent("worker_disconnected", 0)),
    "gen-cut-reset": _breaks({**_CUT, "with_reset": True}, _CUT_EVENT),
    "gen-cut-inside": _breaks({**_CUT, "inside": True}, Cut()),
    "gen-cut-inside-reset": _breaks({**_CUT, "inside": True, "with_reset": True}, Cut()),
    "gen-stall": _generation({"kind": "stall", "after_events": _AFTER}, GEN_LATE,
                             ErrorEvent("idle_timeout", _AFTER), 1),
    "gen-stall-at-once": _generation({"kind": "stall", "after_events": 0}, GEN_LATE,
                                     ErrorEvent("idle_timeout", 0), 1),
    # Generation leg: unusual but sound
    "gen-error-event": _generation({"kind": "sse_error", "after_events": 2}, WORKS,
                           Verbatim('"message": "Generation failed: simulated", "type": "server_error", '
                                    '"code": null, "param": null}}\n\n' + DONE + DONE)),
    "gen-metrics-behind-done": _generation({"kind": "slow_first_byte", "seconds": 0.0}, WORKS,
                                   Verbatim("}\n\n"), headers={"x-trtllm-return-metrics": "1"}),
    "gen-not-sse": _generation({"kind": "not_sse"}, WORKS, JSONInstead()),
    "gen-slow": _final({"kind": "slow_first_byte", "seconds": 0.1}, WORKS),
    "gen-pause": _final({"kind": "stall", "after_events": _AFTER, "seconds": 0.1}, WORKS),
    "gen-1xx": _final({"kind": "informational"}, WORKS),
    "gen-100": _final({"kind": "informational", "status": 100}, WORKS),
    "gen-large-headers": _final({"kind": "oversized_headers", "size": 100_000}, WORKS),
    "gen-chunk-extensions": _final({"kind": "chunk_extensions"}, WORKS),
    "gen-trailers": _final({"kind": "trailers"}, WORKS),
    "gen-close": _final({"kind": "close"}, WORKS),
    "gen-close-silently": _final({"kind": "close_silently"}, WORKS),
    "gen-unsolicited": _final({"kind": "unsolicited"}, WORKS),
}
# fmt: on

PLAIN_SERVER = (
    "ctx-refuse", "ctx-hang", "ctx-400", "ctx-503", "ctx-null", "ctx-no-handoff", "gen-refuse", "gen-hang",
    "gen-400", "gen-500", "gen-null", "gen-cut", "gen-cut-inside", "gen-stall", "gen-error-event", "gen-not-sse",
    "gen-chunk-extensions", "gen-1xx",
)  # fmt: skip
"""The rows that are also tried under plain uvicorn, without our own protocol class."""
