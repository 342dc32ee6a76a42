"""Which headers, queries and signatures pass, in both directions."""

import re

import pytest
from e2e_bodies import answer_text, chat, completion

from proxy.sim import expected_text
from proxy.sim.auth import AUTH_HEADER, REFUSAL, signature

LEGS = ("context", "generation")


def test_headers_of_the_client_on_both_legs(stack):
    sent = {
        "x-request-id": "abc.DEF-123_4",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
        "x-trtllm-something": "öne".encode().decode("latin-1"),
        "authorization": "Bearer secret",
        "cookie": "session=secret",
        "x-trtllm-disagg-auth": "sha256=forged",
        "x-trtllm-msgpack": "1",
        "x-forwarded-for": "10.0.0.1",
        "accept-encoding": "gzip",
    }
    response = stack.post(chat(), headers={name: value.encode("latin-1") for name, value in sent.items()})
    assert response.status_code == 200
    assert response.headers["x-request-id"] == "abc.DEF-123_4"
    passed = {"x-request-id", "traceparent", "tracestate", "x-trtllm-something"}
    for leg in LEGS:
        headers = dict(stack.only_request(leg).headers)
        assert {name: headers.get(name) for name in passed} == {name: sent[name] for name in passed}
        assert not headers.keys() & (sent.keys() - passed)
        assert headers["content-type"] == "application/json"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("given", [None, "", "with blank", "x" * 129], ids=["none", "empty", "blank", "long"])
def test_a_request_id_is_made_when_there_is_no_usable_one(stack, stream, given):
    headers = {} if given is None else {"x-request-id": given}
    response = stack.post(chat(stream=stream), headers=headers)
    made = response.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert [stack.only_request(leg).header("x-request-id") for leg in LEGS] == [made, made]


def test_errors_carry_the_request_id(stack):
    response = stack.post({"model": "sim"}, "/v1/chat/completions", headers={"x-request-id": "mine"})
    assert response.status_code == 400
    assert response.headers["x-request-id"] == "mine"
    assert stack.http.get("/nowhere", headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"


def test_the_query_string_is_kept(stack):
    query = "api-version=1&name=%C3%B6&empty="
    assert stack.post(chat(), f"/v1/chat/completions?{query}").status_code == 200
    for leg in LEGS:
        request = stack.only_request(leg)
        assert (request.path, request.query) == ("/v1/chat/completions", query)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_headers_of_the_worker(stack, stream):
    """Those of the answer pass, those of the worker's connection and identity do not."""
    headers = {
        "server": "uvicorn-worker",
        "set-cookie": "worker=1",
        "x-trtllm-thing": "yes",
        "server-timing": "gen;dur=3",
        "x-internal": "secret",
    }
    worker = stack.cluster.generation_workers[0]
    worker.add_fault(kind="status", status=429, retry_after=7, headers=headers, count=1)
    response = stack.post(chat(stream=stream))
    stack.expected_leftover = 1
    assert response.status_code == 429
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-trtllm-thing"] == "yes"
    assert response.headers.get_list("server-timing")[0].startswith("gen;dur=3, queue;dur=")
    assert not response.headers.keys() & {"set-cookie", "x-internal"}
    assert "uvicorn-worker" not in response.headers.get("server", "")
    assert len(response.headers.get_list("date")) == 1


class TestSigned:
    @pytest.fixture
    def stack(self, make_stack):
        return make_stack({"auth_key": "kéy"}, internal_request_auth_key="kéy")

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_generation_legs_are_signed(self, stack, stream):
        body = chat(stream=stream)
        assert stack.post(body).status_code == 200
        leg = stack.only_request("generation")
        signed = signature("kéy", leg.json()["disaggregated_params"])
        assert leg.header(AUTH_HEADER.decode()) == signed
        assert stack.only_request("context").header(AUTH_HEADER.decode()) is None

    def test_completions(self, stack):
        body = completion()
        assert answer_text(stack.post(body).json()) == expected_text(body)

    def test_a_client_cannot_bring_a_signature(self, stack):
        headers = {"x-trtllm-disagg-auth": "sha256=" + "0" * 64}
        assert stack.post(chat(), headers=headers).status_code == 200
        shown = [name for name, _ in stack.only_request("generation").headers if name == AUTH_HEADER.decode()]
        assert shown == [AUTH_HEADER.decode()]


@pytest.mark.parametrize("key", [None, "another"])
def test_a_worker_refuses_unsigned_legs(make_stack, key):
    """The simulated workers do check: without the right key there is no answer."""
    stack = make_stack({"auth_key": "key"}, internal_request_auth_key=key)
    response = stack.post(chat())
    stack.expected_leftover = 1
    assert response.status_code == 400
    assert response.json()["message"] == REFUSAL
