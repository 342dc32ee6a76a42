"""Legs that are sent again, and those that must not be; deadlines; workers that leave and come back."""

import time

import pytest
from e2e_bodies import answer_text, chat, completion, streamed_text
from e2e_raw import RawClient, request
from program import eventually

from proxy.sim import expected_text


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


def check(response, body):
    assert response.status_code == 200, response.text
    text = streamed_text(response.text) if body.get("stream") else answer_text(response.json())
    assert text == expected_text(body)


def ids_of(stack, leg):
    return [request.json()["disaggregated_params"]["disagg_request_id"] for request in stack.requests(leg)]


def error_of(response, status, code, source):
    assert response.status_code == status
    assert response.headers["x-disagg-proxy-error"] == f"{source};{code}"
    assert response.json()["error"]["code"] == code


class TestReusedConnections:
    """The worker closes an idle connection in the very moment in which a request is written to it."""

    def warm(self, stack, body):
        check(stack.post(body), body)
        for worker in stack.cluster.workers:
            worker.clear_records()

    def test_context_leg(self, stack, stream):
        body = chat(stream=stream)
        self.warm(stack, body)
        retries = stack.metric("retries_total")
        stack.cluster.context_workers[0].add_fault(kind="reset_reused", count=1)
        check(stack.post(body), body)
        assert stack.metric("retries_total") == retries + 1
        assert len(stack.requests("context")) == 1  # the first one was never parsed

    def test_generation_leg(self, stack, stream):
        body = chat(stream=stream)
        self.warm(stack, body)
        stack.cluster.generation_workers[0].add_fault(kind="reset_reused", count=1)
        check(stack.post(body), body)
        assert ids_of(stack, "generation") == ids_of(stack, "context")

    def test_a_context_leg_that_was_read_gets_a_fresh_id(self, stack, stream):
        """The worker has seen the request, perhaps its id too: it is never sent twice with the same one."""
        body = completion(stream=stream)
        self.warm(stack, body)
        stack.cluster.context_workers[0].add_fault(kind="reset", count=1)
        check(stack.post(body), body)
        first, second = ids_of(stack, "context")
        assert first < second
        assert ids_of(stack, "generation") == [second]

    def test_a_generation_leg_keeps_its_id(self, stack, stream):
        body = completion(stream=stream)
        self.warm(stack, body)
        stack.cluster.generation_workers[0].add_fault(kind="disconnect", count=1)
        check(stack.post(body), body)
        assert ids_of(stack, "generation") == ids_of(stack, "context") * 2

    def test_a_hand_off_that_was_taken_after_all(self, stack, stream):
        """The worker died with the leg; whoever gets it again has no KV cache for it, so both legs are done again."""
        body = chat(stream=stream)
        self.warm(stack, body)
        worker = stack.cluster.generation_workers[0]
        worker.add_fault(kind="disconnect", count=1)
        worker.add_fault(kind="status", status=400, body="no KV cache", skip=1, count=1)
        check(stack.post(body), body)
        assert len(stack.requests("context")) == 2
        stack.expected_leftover = 1

    def test_without_retries_a_reused_connection_is_still_forgiven(self, make_stack, stream):
        stack = make_stack(max_retries=0)
        body = chat(stream=stream)
        self.warm(stack, body)
        stack.cluster.context_workers[0].add_fault(kind="reset_reused", count=1)
        stack.cluster.generation_workers[0].add_fault(kind="reset_reused", count=1)
        check(stack.post(body), body)


def drop_connections(stack):
    """Let the next leg use a fresh connection."""
    for worker in stack.cluster.workers:
        stack.server.loop.call_soon_threadsafe(_close_idle, stack.server.service, worker.address)
    eventually(lambda: not stack.metric("worker_connections"), what="no connections")


def _close_idle(service, address):
    for worker in service.registry.workers:
        if worker.address.text == address:
            while (connection := worker.pool.take_idle()) is not None:
                connection.close()


class TestFreshConnections:
    @pytest.fixture(autouse=True)
    def _fresh(self, stack):
        drop_connections(stack)

    def test_a_context_leg_is_sent_again(self, stack, stream):
        stack.cluster.context_workers[0].add_fault(kind="disconnect", count=1)
        body = chat(stream=stream)
        check(stack.post(body), body)
        first, second = ids_of(stack, "context")
        assert first < second

    def test_a_context_leg_that_fails_each_time(self, stack, stream):
        stack.cluster.context_workers[0].add_fault(kind="disconnect")
        error_of(stack.post(chat(stream=stream)), 502, "worker_disconnected", "ctx")
        assert len(stack.requests("context")) == 2  # max_retries is 1

    def test_a_generation_leg_takes_the_request_through_both_legs_again(self, stack, stream):
        """The worker may have taken the hand-off already, so a second leg with it could only fail."""
        stack.cluster.generation_workers[0].add_fault(kind="disconnect", count=1)
        body = chat(stream=stream)
        check(stack.post(body), body)
        assert ids_of(stack, "generation") == ids_of(stack, "context")
        assert len(stack.requests("generation")) == 2
        stack.expected_leftover = 1

    def test_a_generation_leg_that_fails_each_time(self, stack, stream):
        stack.cluster.generation_workers[0].add_fault(kind="disconnect")
        error_of(stack.post(chat(stream=stream)), 502, "worker_disconnected", "gen")
        assert len(stack.requests("generation")) == 2
        stack.expected_leftover = 2


class TestAnswersThatSayNothingAboutTheRequest:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
    def test_a_context_worker_is_asked_again(self, stack, stream, status):
        stack.cluster.context_workers[0].add_fault(kind="status", status=status, retry_after=0, count=1)
        body = chat(stream=stream)
        check(stack.post(body), body)
        first, second = ids_of(stack, "context")
        assert first < second

    @pytest.mark.parametrize(
        ("fault", "left"),
        [
            ({"kind": "null_body"}, 0),
            ({"kind": "truncated_json"}, 1),
            ({"kind": "missing_handoff", "handoff": "absent"}, 1),
            ({"kind": "cut"}, 1),
        ],
        ids=lambda value: value["kind"] if isinstance(value, dict) else None,
    )
    def test_a_context_answer_without_what_must_be_in_it(self, stack, stream, fault, left):
        stack.cluster.context_workers[0].add_fault(**fault, count=1)
        body = chat(stream=stream)
        check(stack.post(body), body)
        first, second = ids_of(stack, "context")
        assert first < second
        stack.expected_leftover = left

    @pytest.mark.parametrize("leg", ["context", "generation"])
    @pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
    def test_a_refusal_is_final(self, stack, stream, leg, status):
        workers = stack.cluster.context_workers if leg == "context" else stack.cluster.generation_workers
        workers[0].add_fault(kind="status", status=status, body="no", count=1)
        response = stack.post(chat(stream=stream))
        assert (response.status_code, response.text) == (status, "no")
        assert len(stack.requests(leg)) == 1
        stack.expected_leftover = leg == "generation"

    @pytest.mark.parametrize("status", [408, 500, 502, 504])
    def test_a_generation_worker_that_failed(self, stack, stream, status):
        stack.cluster.generation_workers[0].add_fault(kind="status", status=status, count=1)
        body = chat(stream=stream)
        check(stack.post(body), body)
        assert len(stack.requests("context")) == 2
        stack.expected_leftover = 1

    def test_the_last_answer_keeps_its_body(self, stack, stream):
        stack.cluster.generation_workers[0].add_fault(kind="status", status=500, body="boom")
        response = stack.post(chat(stream=stream))
        assert (response.status_code, response.text) == (500, "boom")
        stack.expected_leftover = 2

    @pytest.mark.parametrize("status", [429, 503])
    def test_another_generation_worker_takes_the_hand_off_of_one_that_refused(
        self, make_stack, stream, status
    ):
        stack = make_stack({"generation": 2})
        refusing = stack.cluster.generation_workers[0]
        refusing.add_fault(kind="status", status=status, count=1)
        for _ in range(2):  # one of them is placed on it first
            body = chat(stream=stream)
            check(stack.post(body), body)
        assert len(stack.requests("context")) == 2
        assert sum(request.leg == "generation" for request in refusing.requests) == 1

    def test_the_retry_budget(self, make_stack, stream):
        stack = make_stack(retry_budget=0)
        stack.cluster.context_workers[0].add_fault(kind="status", status=500, body="boom", count=1)
        assert stack.post(chat(stream=stream)).status_code == 500
        assert len(stack.requests("context")) == 1


class TestRefused:
    @pytest.fixture
    def stack(self, make_stack):
        return make_stack({"context": 2, "generation": 2})

    def test_one_context_worker(self, stack, stream):
        dead = stack.cluster.context_workers[0]
        stack.cluster.call(dead.refuse())
        for _ in range(4):
            body = chat(stream=stream)
            check(stack.post(body), body)
        assert len(stack.requests("generation")) == 4

    def test_one_generation_worker(self, stack, stream):
        """Nothing was sent, so the hand-off is still there for another worker."""
        stack.cluster.call(stack.cluster.generation_workers[0].refuse())
        for _ in range(4):
            body = chat(stream=stream)
            check(stack.post(body), body)
        assert sorted(ids_of(stack, "generation")) == sorted(ids_of(stack, "context"))

    @pytest.mark.parametrize("role", ["context", "generation"])
    def test_all_of_a_role(self, stack, stream, role):
        workers = [worker for worker in stack.cluster.workers if worker.role == role]
        for worker in workers:
            stack.cluster.call(worker.refuse())
        error_of(stack.post(chat(stream=stream)), 502, "worker_unreachable", role[:3].replace("con", "ctx"))
        # Once the workers are back, the proxy may still get somebody to take it.
        stack.most_leftover = role == "generation"


class TestDeadlines:
    @pytest.fixture
    def stack(self, make_stack):
        return make_stack(timeout_context=0.3, timeout_first_byte=0.3, timeout_idle=0.3)

    @pytest.mark.parametrize(
        ("leg", "source", "code"),
        [("context", "ctx", "context_timeout"), ("generation", "gen", "first_byte_timeout")],
    )
    def test_no_answer(self, stack, stream, leg, source, code):
        worker = next(worker for worker in stack.cluster.workers if worker.role == leg)
        worker.add_fault(kind="hang", count=1)
        aborts = worker.engine.aborts
        started = time.monotonic()
        error_of(stack.post(chat(stream=stream)), 504, code, source)
        assert 0.25 < time.monotonic() - started < 3
        eventually(lambda: worker.engine.aborts == aborts + 1, 3, "the abort")
        stack.expected_leftover = leg == "generation"

    def test_a_silent_stream(self, stack):
        """The status has been sent: an error event follows the events that came."""
        stack.cluster.generation_workers[0].add_fault(kind="stall", after_events=3, count=1)
        response = stack.post(chat(stream=True))
        assert response.status_code == 200
        assert response.text.count("data: ") == 4
        assert '"code":"idle_timeout"' in response.text
        assert "[DONE]" not in response.text

    def test_a_stream_may_take_longer_than_each_deadline(self, make_stack):
        stack = make_stack(
            {"speed": {"decode_ms": 60.0}},
            timeout_context=0.4,
            timeout_first_byte=0.4,
            timeout_idle=0.4,
        )
        body = chat(stream=True)
        started = time.monotonic()
        check(stack.post(body), body)
        assert time.monotonic() - started > 0.5


class TestHealth:
    @pytest.fixture
    def stack(self, make_stack):
        return make_stack({"context": 2}, probe_interval=0.05)

    def test_a_worker_that_leaves_and_comes_back(self, stack):
        def ready():
            return stack.metric("worker_ready", role="context")

        worker = stack.cluster.context_workers[0]
        eventually(lambda: ready() == 2)
        stack.cluster.call(worker.refuse())
        eventually(lambda: ready() == 1, what="one worker out")
        assert stack.http.get("/health").status_code == 200
        body = chat()
        for _ in range(4):
            check(stack.post(body), body)
        stack.cluster.call(worker.accept())
        eventually(lambda: ready() == 2, what="the worker back")

    @pytest.mark.parametrize("kind", ["starting", "status"])
    def test_unready_when_a_role_is_out(self, stack, kind, stream):
        for worker in stack.cluster.context_workers:
            worker.add_fault(kind=kind, **({"route": "health", "status": 500} if kind == "status" else {}))
        eventually(lambda: stack.http.get("/health").status_code == 503, what="not ready")
        assert stack.http.get("/health/ready").status_code == 503
        assert stack.http.get("/health/live").status_code == 200
        assert stack.http.get("/cluster_info").json()["is_ready"] is False
        body = chat(stream=stream)
        response = stack.post(body)
        if kind == "status":  # all are ejected: the proxy fails open
            check(response, body)
        else:
            error_of(response, 503, "no_context_worker", "proxy")
            assert response.headers["retry-after"] == "1"
        for worker in stack.cluster.context_workers:
            worker.clear_faults()
        eventually(lambda: stack.http.get("/health").status_code == 200, what="ready again")


class TestClientLeaves:
    """Nothing may run on for a client that has gone."""

    def test_in_the_context_leg(self, stack, stream):
        worker = stack.cluster.context_workers[0]
        worker.add_fault(kind="hang", count=1)
        self.leave(stack, chat(stream=stream), worker, leg="context")
        assert not stack.requests("generation")

    def test_before_the_first_byte(self, stack, stream):
        worker = stack.cluster.generation_workers[0]
        worker.add_fault(kind="hang", count=1)
        self.leave(stack, chat(stream=stream), worker, leg="generation")
        stack.expected_leftover = 1

    def leave(self, stack, body, worker, *, leg):
        aborts, legs = worker.engine.aborts, worker.legs[leg]
        with RawClient(stack.port) as client:
            client.send(request(body))
            eventually(lambda: worker.legs[leg] == legs + 1, what="the leg")
        eventually(lambda: worker.engine.aborts == aborts + 1, 3, "the abort")
