"""Every fault of a worker, for every kind of request: see `expectations`."""

import json
import re
from dataclasses import replace

import pytest
from chaos_cell import Cell, observe_all
from e2e_bodies import answer_text, events, streamed_text
from expectations import (
    MATRIX,
    PLAIN_SERVER,
    Cut,
    Error,
    ErrorEvent,
    JSONInstead,
    Passes,
    Truncated,
    Verbatim,
    Works,
)

from proxy.sim import expected_text

ROUTES = ("chat", "completions")
CELLS = [
    *(Cell(name, route, stream) for name in MATRIX for route in ROUTES for stream in (False, True)),
    *(Cell(name, "chat", stream, "uvicorn") for name in PLAIN_SERVER for stream in (False, True)),
]
# What Python and our libraries say when they fail.
PYTHON_TEXT = re.compile(
    r"Traceback|Error\(|Exception|Errno|object at 0x|proxy/|\.py\b|httptools|asyncio|uvloop"
)


@pytest.fixture(scope="module")
def observations(request, chaos):
    """All cells that were selected, run side by side."""
    wanted = [
        item.callspec.params["cell"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    seen = chaos.call(observe_all(list(dict.fromkeys(wanted))), 600)
    # ASGI cannot cut a connection but by returning early, of which uvicorn complains.
    cut = [cell for cell in wanted if cell.kind == "uvicorn" and isinstance(cell.expected, Cut)]
    chaos.excuse("ASGI callable returned without completing response.", len(cut))
    return seen


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(cell, observations):
    seen = observations[cell]
    if isinstance(seen, BaseException):
        raise seen
    row = cell.row
    expected = cell.expected
    CHECKS[type(expected)](cell, expected, seen)
    assert seen.answer.headers["x-request-id"]
    legs, left, orphans = row.legs[cell.stream], row.left[cell.stream], row.orphans[cell.stream]
    assert legs is None or seen.legs == legs
    assert seen.left == (len(seen.ids["context"]) if left is None else left)
    assert seen.expired, "hand-offs were left after their time"
    if orphans is None:
        assert seen.orphans.total() == seen.left
    else:
        assert seen.orphans == orphans
    assert seen.cut_inside_event == isinstance(expected, Cut)
    # Accounting: one request, settled once.
    assert seen.outcomes == {_outcome(expected): 1}
    # Each context leg has an id of its own; a generation leg has that of one of them.
    assert len(set(seen.ids["context"])) == len(seen.ids["context"])
    assert set(seen.ids["generation"]) <= set(seen.ids["context"])
    # And the next request is served as if nothing had been.
    check_works(cell, Works(), replace(seen, answer=seen.afterwards))


def _outcome(expected):
    if isinstance(expected, Passes) and expected.status >= 400:
        return "error" if expected.status >= 500 else "rejected"
    return "error" if isinstance(expected, Error | ErrorEvent | Cut) else "ok"


def check_works(cell, expected, seen):
    answer = seen.answer
    assert answer.status == 200, answer.body
    assert answer.complete
    text = streamed_text(answer.text) if cell.stream else answer_text(answer.json())
    assert text == expected_text(cell.body)
    assert "disaggregated_params" not in answer.text


def check_passes(cell, expected, seen):
    answer = seen.answer
    assert (answer.status, answer.body) == (expected.status, expected.body.encode())
    assert answer.headers["content-type"] == expected.content_type
    assert answer.complete
    assert "x-disagg-proxy-error" not in answer.headers


def check_error(cell, expected, seen):
    answer = seen.answer
    assert answer.status == expected.status, answer.body
    assert answer.complete
    code = check_envelope(answer.json(), seen.addresses)
    assert code in expected.codes
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-disagg-proxy-error"] == f"{expected.source};{code}"


def check_envelope(document, addresses):
    """OpenAI's shape, and nothing in it that is nobody's business; returns the code."""
    assert document.keys() == {"error"}
    error = document["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    text = json.dumps(document)
    assert not any(address in text or address.rpartition(":")[2] in text for address in addresses)
    assert not PYTHON_TEXT.search(text), text
    assert error["message"]
    assert error["type"] == "upstream_error"
    return error["code"]


def check_error_event(cell, expected, seen):
    answer = seen.answer
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.complete
    assert not answer.closed, "no close was announced"
    *sound, last = events(answer.text)
    assert len(sound) == expected.events
    assert "[DONE]" not in sound
    assert check_envelope(last, seen.addresses) == expected.code


def check_cut(cell, expected, seen):
    answer = seen.answer
    assert answer.status == 200
    assert not answer.complete
    assert b'"error"' not in answer.body
    assert b"[DONE]" not in answer.body


def check_verbatim(cell, expected, seen):
    answer = seen.answer
    assert answer.status == 200
    assert answer.complete
    assert answer.text.endswith(expected.end)
    assert "data: [DONE]\n\n" in answer.text


def check_json_instead(cell, expected, seen):
    answer = seen.answer
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer_text(answer.json()) == expected_text(cell.body)


def check_truncated(cell, expected, seen):
    answer = seen.answer
    assert answer.status == 200
    assert answer.complete
    with pytest.raises(json.JSONDecodeError):
        answer.json()


CHECKS = {
    Works: check_works,
    Passes: check_passes,
    Error: check_error,
    ErrorEvent: check_error_event,
    Cut: check_cut,
    Verbatim: check_verbatim,
    JSONInstead: check_json_instead,
    Truncated: check_truncated,
}
