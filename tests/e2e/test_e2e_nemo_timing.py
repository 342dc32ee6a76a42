"""`nemo_timing`: the times that NeMo-RL reads, in answers and on their way to the workers."""

import time

import pytest
from e2e_bodies import answer_text, chat, completion, dialect, events, streamed_text

from proxy.sim import expected_text
from proxy.sim.profiles import PROFILES

STAMPS = ["nemo_fe_recv_ts_us", "nemo_fe_fwd_ts_us"]
CONTEXT = ["arrival_ts_us", "queued_ts_us", "first_scheduled_ts_us", "done_ts_us"]
NAMES = {*STAMPS, *(f"nemo_ctx_{name}" for name in CONTEXT)} | {
    f"nemo_ctx_{name}" for name in ("computed_tokens", "first_begin", "num_chunks")
}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def nemo_fields(members):
    return {name: value for name, value in members.items() if name.startswith("nemo_")}


@pytest.fixture(params=PROFILES)
def stack(make_stack, request):
    cluster = {"profile": request.param, "nemo_stamps": True}
    return make_stack(cluster, nemo_timing=True, worker_dialect=dialect(request.param))


@pytest.fixture(params=[chat, completion], ids=["chat", "completions"])
def body(request):
    return request.param()


def check_fields(stack, fields, began):
    """In the order in which things happened, on the same clock as the workers'."""
    assert fields.keys() == NAMES
    times = [fields[name] for name in STAMPS] + [fields[f"nemo_ctx_{name}"] for name in CONTEXT]
    assert times == sorted(times)
    assert began <= times[0]
    assert times[-1] <= time.time_ns() // 1000
    for leg in ("context", "generation"):
        sent = stack.only_request(leg)
        assert [sent.header(f"x-nemo-fe-{name}-us") for name in ("recv", "fwd")] == [
            str(t) for t in times[:2]
        ]


def test_whole_answers(stack, body):
    began = time.time_ns() // 1000
    answer = stack.post(body).json()
    check_fields(stack, nemo_fields(answer), began)
    assert answer_text(answer) == expected_text(body)


@pytest.mark.parametrize("more", [{"stream": True}, USAGE], ids=["finish", "usage"])
def test_streams(stack, body, more):
    began = time.time_ns() // 1000
    text = stack.post({**body, **more}).text
    *others, last, done = events(text)
    assert done == "[DONE]"
    assert ("usage" in last and last["choices"] == []) is ("stream_options" in more)
    check_fields(stack, nemo_fields(last), began)
    assert not any(nemo_fields(event) for event in others)
    assert streamed_text(text) == expected_text(body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_finished_by_the_context_worker(stack, stream):
    stack.cluster.context_workers[0].add_fault(kind="finish", count=1)
    response = stack.post(chat(stream=stream))
    shown = events(response.text)[-2] if stream else response.json()
    assert nemo_fields(shown).keys() == NAMES


def test_with_everything_else(stack):
    """Usage, times and metrics: three rewriters at once."""
    response = stack.post(chat(**USAGE), headers={"x-trtllm-return-metrics": "1"})
    text, _, metrics = response.text.partition("event: trtllm.perf_metrics\n")
    last = events(text)[-2]
    assert nemo_fields(last).keys() == NAMES
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert "disagg_ttft" in metrics


def test_a_leg_that_is_sent_again_is_stamped_again(make_stack):
    stack = make_stack({"context": 2, "nemo_stamps": True}, nemo_timing=True)
    stack.cluster.context_workers[0].add_fault(kind="status", status=500, count=1)
    legs = []
    while len(legs) < 2:
        before = stack.requests("context")
        answer = stack.post(chat()).json()
        legs = [leg for leg in stack.requests("context") if leg not in before]
    stamps = [int(leg.header("x-nemo-fe-fwd-us")) for leg in legs]
    assert len({leg.header("x-nemo-fe-recv-us") for leg in legs}) == 1
    assert len(set(stamps)) == 2
    assert answer["nemo_fe_fwd_ts_us"] == max(stamps)


def test_workers_without_times(make_stack):
    stack = make_stack(nemo_timing=True)
    assert nemo_fields(stack.post(chat()).json()).keys() == set(STAMPS)


def test_without_a_context_leg(make_stack):
    stack = make_stack(nemo_timing=True, benchmark_gen_only=True)
    response = stack.post(chat())
    stack.most_leftover = 1
    sent = stack.only_request("generation")
    assert int(sent.header("x-nemo-fe-fwd-us")) >= int(sent.header("x-nemo-fe-recv-us"))
    assert response.status_code == 400  # the simulated worker has no such hand-off


def test_errors_are_the_workers_own(stack):
    stack.cluster.context_workers[0].add_fault(kind="status", status=400, body='{"error":"no"}', count=1)
    assert stack.post(chat()).text == '{"error":"no"}'


def test_off_by_default(make_stack):
    stack = make_stack({"nemo_stamps": True})
    assert not nemo_fields(stack.post(chat()).json())
    assert not any(
        name.startswith("x-nemo")
        for leg in ("context", "generation")
        for name, _ in stack.only_request(leg).headers
    )
