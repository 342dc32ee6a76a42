import json

import pytest

from proxy.sim.openapi import openapi_document
from proxy.sim.profiles import PROFILES
from proxy.wire.errors import BrokenHandOff
from proxy.wire.fields.routes import read_routes
from proxy.wire.handoff import Outcome, read_response
from proxy.wire.responses import CleanEvents, response_stream

PARAMETERS = {"request_type": "context_only", "ctx_request_id": 5, "disagg_request_id": 5, "unknown": [1]}
USAGE = {
    "input_tokens": 3,
    "output_tokens": 1,
    "input_tokens_details": {"cached_tokens": 2},
    "total_tokens": 4,
}


def answer(**fields):
    shown = {
        "id": "resp_1",
        "status": "incomplete",
        "output": [{"type": "message"}],
        "usage": USAGE,
        "finish_reason": "not_finished",
        "prompt_token_ids": [1, 2, 3],
        "prompt_token_ids_b64": None,
        "disaggregated_params": PARAMETERS,
        **fields,
    }
    return json.dumps(shown).encode()


def test_the_hand_off_stands_at_the_top_level():
    read = read_response(answer())
    assert read.outcome is Outcome.HAND_OFF
    assert {name: json.loads(bytes(value)) for name, value in read.parameters.items()} == PARAMETERS
    assert (read.request_id, read.token_ids_member) == (5, "prompt_token_ids")
    assert json.loads(bytes(read.token_ids)) == [1, 2, 3]
    assert json.loads(bytes(read.usage)) == {
        "prompt_tokens": 3,
        "total_tokens": 4,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_ids_in_base64():
    read = read_response(answer(prompt_token_ids=None, prompt_token_ids_b64="AQAAAA=="))
    assert read.token_ids_member == "prompt_token_ids_b64"
    assert bytes(read.token_ids) == b'"AQAAAA=="'


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("stop", Outcome.FINISHED),
        ("length", Outcome.HAND_OFF),
        (None, Outcome.GIVEN_UP),
        ("timeout", Outcome.GIVEN_UP),
    ],
)
def test_outcomes(reason, outcome):
    assert read_response(answer(finish_reason=reason)).outcome is outcome


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"[]",
        b"{",
        answer(disaggregated_params=None),
        answer(disaggregated_params={"ctx_request_id": 5}),
        answer(prompt_token_ids={}),
        answer(usage={"input_tokens": "many"}),
    ],
)
def test_broken_hand_offs(body):
    with pytest.raises(BrokenHandOff):
        read_response(body)


def test_without_usage():
    assert bytes(read_response(answer(usage=None)).usage) == b"null"


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_a_finished_answer_as_a_stream(status):
    stream = response_stream(read_response(answer(finish_reason="stop", status=status)))
    assert b"disaggregated_params" not in stream
    assert b"prompt_token_ids" not in stream
    blocks = [
        dict(line.split(": ", 1) for line in b.split("\n")) for b in stream.decode().strip().split("\n\n")
    ]
    names = ["response.created", "response.in_progress", f"response.{status}"]
    assert [block["event"] for block in blocks] == names
    last = json.loads(blocks[-1]["data"])
    assert (last["type"], last["sequence_number"]) == (names[-1], 2)
    assert (last["response"]["output"], last["response"]["usage"]) == ([{"type": "message"}], USAGE)


def test_events_are_cleaned():
    clean = CleanEvents()
    event = (
        b"event: response.completed\ndata: "
        + json.dumps({"type": "response.completed", "response": json.loads(answer())}).encode()
    )
    cleaned = clean.event(event + b"\n\n")
    assert cleaned.startswith(b"event: response.completed\n")
    response = json.loads(cleaned.partition(b"data: ")[2])["response"]
    assert "disaggregated_params" not in response
    assert not any(name.startswith("prompt_token_ids") for name in response)
    assert response["usage"] == USAGE


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"type":"response.output_text.delta","delta":"x"}\n\n',
        b'data: {"delta":"say \\"disaggregated_params\\" aloud"}\n\n',
        b'data: {"delta":{"disaggregated_params":1}}\n\n',
        b'data: {"response":null,"disaggregated_params":1}\n\n',
        b'data: nonsense "disaggregated_params"\n\n',
    ],
)
def test_other_events_pass(event):
    assert CleanEvents().event(event) is event


def test_routes_of_a_worker():
    routes = read_routes(openapi_document(PROFILES["jul"]))
    assert "/v1/responses" in routes.paths
    assert routes.hand_offs == {"/v1/completions", "/v1/chat/completions"}
    routes = read_routes(openapi_document(PROFILES["jul"], next_routes=True))
    assert "/v1/responses" in routes.hand_offs
    assert "/v1/messages" in routes.paths - routes.hand_offs


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"paths": []}', b"[" * 5000])
def test_documents_without_routes(document):
    assert read_routes(document) is None
