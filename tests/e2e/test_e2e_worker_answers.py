"""Answers of workers that are no success: complete ones pass as they are, broken ones become the proxy's errors."""

import json
from contextlib import suppress

import pytest
from e2e_bodies import answer_text, chat, completion, streamed_text
from e2e_raw import RawClient, request

from proxy.sim import expected_text

LEGS = ("context", "generation")


@pytest.fixture
def stack(make_stack):
    """Without retries: what one worker says is what the client hears."""
    return make_stack(max_retries=0)


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


@pytest.fixture(params=LEGS)
def leg(request):
    return request.param


def fault(stack, leg, **fields):
    """Switch a fault on for one leg, and say whether the hand-off is lost with it."""
    workers = stack.cluster.context_workers if leg == "context" else stack.cluster.generation_workers
    fields.setdefault("count", 1)
    workers[0].add_fault(**fields)


def error_of(response, status, code, source):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-disagg-proxy-error"] == f"{source};{code}"
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert "127.0.0.1" not in response.text
    return error


SOURCES = {"context": "ctx", "generation": "gen"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 422, 429, 500, 501, 503])
def test_a_complete_answer_keeps_status_and_body(stack, leg, stream, status):
    body = json.dumps({"error": "wörker says no", "status": status}, ensure_ascii=False, indent=1)
    fault(stack, leg, kind="status", status=status, body=body, content_type="application/json; x=y")
    response = stack.post(chat(stream=stream))
    assert response.status_code == status
    assert response.content == body.encode()
    assert response.headers["content-type"] == "application/json; x=y"
    assert "x-request-id" in response.headers
    stack.expected_leftover = leg == "generation"
    assert len(stack.requests("generation")) == (leg == "generation")


def test_a_refusal_of_the_worker_itself(stack, stream):
    """The simulated worker's own validation, as JSON, also for a client that wanted a stream."""
    response = stack.post(chat(stream=stream, temperature="hot"))
    assert response.status_code == 400
    assert "temperature" in response.json()["error"]


def test_null_from_either_worker(stack, leg, stream):
    fault(stack, leg, kind="null_body")
    response = stack.post(chat(stream=stream))
    error_of(response, 502, "bad_worker_response", SOURCES[leg])
    stack.expected_leftover = leg == "generation"


@pytest.mark.parametrize("handoff", ["absent", "null", "null_ids"])
@pytest.mark.parametrize("body", [chat(), completion()], ids=["chat", "completions"])
def test_a_missing_hand_off(stack, stream, body, handoff):
    fault(stack, "context", kind="missing_handoff", handoff=handoff)
    response = stack.post({**body, "stream": stream})
    error_of(response, 502, "bad_worker_response", "ctx")
    assert not stack.requests("generation")
    stack.expected_leftover = 1


def test_a_truncated_context_answer(stack, stream):
    fault(stack, "context", kind="truncated_json")
    error_of(stack.post(chat(stream=stream)), 502, "bad_worker_response", "ctx")
    stack.expected_leftover = 1


def test_not_http(stack, leg, stream):
    fault(stack, leg, kind="garbage")
    error_of(stack.post(chat(stream=stream)), 502, "bad_worker_response", SOURCES[leg])
    stack.expected_leftover = leg == "generation"


def test_oversized_headers(stack, leg, stream):
    fault(stack, leg, kind="oversized_headers", size=140_000)
    error_of(stack.post(chat(stream=stream)), 502, "bad_worker_response", SOURCES[leg])
    stack.expected_leftover = leg == "context"


@pytest.mark.parametrize("kind", ["informational", "chunk_extensions", "trailers", "close", "close_silently"])
def test_unusual_but_sound_answers(stack, leg, stream, kind):
    fault(stack, leg, kind=kind)
    body = chat(stream=stream)
    for _ in range(2):
        response = stack.post(body)
        text = streamed_text(response.text) if stream else answer_text(response.json())
        assert text == expected_text(body)


def test_an_unsolicited_answer_is_never_taken_for_another(stack, leg, stream):
    fault(stack, leg, kind="unsolicited")
    first, second = chat(stream=stream), chat(stream=stream, max_tokens=5)
    for body in (first, second, first):
        response = stack.post(body)
        text = streamed_text(response.text) if stream else answer_text(response.json())
        assert text == expected_text(body)


def test_json_for_a_client_that_wanted_a_stream(stack):
    """Some workers answer in one piece; the client gets it with the worker's content type."""
    fault(stack, "generation", kind="not_sse")
    body = chat(stream=True)
    response = stack.post(body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert answer_text(response.json()) == expected_text(body)
    assert "disaggregated_params" not in response.text


class TestBrokenStreams:
    def test_cut_between_events(self, stack):
        """The status has been sent: an error event tells the client, and no [DONE] follows."""
        fault(stack, "generation", kind="cut", after_events=3)
        with RawClient(stack.port) as client:
            client.send(request(chat(stream=True)))
            status, _, body = client.read_answer()
        assert status == 200
        *sound, last = body.decode().removesuffix("\n\n").split("\n\n")
        assert len(sound) == 3
        error = json.loads(last.removeprefix("data: "))["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["code"] == "worker_disconnected"
        assert b"[DONE]" not in body

    @pytest.mark.parametrize("with_reset", [False, True], ids=["closed", "reset"])
    def test_cut_inside_an_event(self, stack, with_reset):
        """Nothing can be added inside an event: the connection ends without the end of the message."""
        fault(stack, "generation", kind="cut", after_events=3, inside=True, with_reset=with_reset)
        with RawClient(stack.port) as client:
            client.send(request(chat(stream=True)))
            received = b"".join(client.read_until(b"\n\n") for _ in range(3))
            with suppress(ConnectionResetError):
                received += client.read_to_end()
        assert b"[DONE]" not in received
        assert b'"error"' not in received
        assert not received.endswith(b"0\r\n\r\n")

    def test_an_error_event_of_the_worker_passes(self, stack):
        fault(stack, "generation", kind="sse_error", after_events=2)
        response = stack.post(chat(stream=True))
        assert response.text.endswith("data: [DONE]\n\ndata: [DONE]\n\n")
        assert "Generation failed: simulated" in response.text

    def test_a_whole_answer_cut(self, stack):
        fault(stack, "generation", kind="cut")
        error_of(stack.post(chat()), 502, "worker_disconnected", "gen")


def test_after_failures_the_next_request_is_served(stack, stream, leg):
    for kind in ("reset", "disconnect", "garbage"):
        fault(stack, leg, kind=kind, count=2)
        response = stack.post(chat(stream=stream))
        assert response.status_code in (200, 502)
        for worker in stack.cluster.workers:
            worker.clear_faults()
        stack.expected_leftover += leg == "generation"
        body = chat(stream=stream)
        response = stack.post(body)
        text = streamed_text(response.text) if stream else answer_text(response.json())
        assert text == expected_text(body)
