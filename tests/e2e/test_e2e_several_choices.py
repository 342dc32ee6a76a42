"""Several choices for one prompt: as many requests for one choice each, merged."""

import json

import openai
import pytest
from e2e_bodies import answer_text, chat, completion, events, path_of
from e2e_raw import RawClient, request
from program import eventually

from proxy.errors import RequestAborted
from proxy.sim import expected_answers, expected_text, prompt_token_ids

SEED = 11
BODIES = {"chat": chat, "completion": completion}


@pytest.fixture(params=BODIES)
def body(request):
    return BODIES[request.param](seed=SEED)


def texts(body, count):
    """What the choices must be: those of requests with the seeds that follow each other."""
    return [expected_text({**body, "seed": SEED + number}) for number in range(count)]


def tokens(body, count):
    return sum(len(expected_answers({**body, "seed": SEED + n})[0].token_ids) for n in range(count))


def text_of(choice):
    return answer_text({"choices": [choice]})


def streamed(text):
    """The text of each choice, by number, and the events."""
    shown = events(text)
    pieces = {}
    for event in shown:
        for choice in [] if event == "[DONE]" else event.get("choices", []):
            piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            pieces[choice["index"]] = pieces.get(choice["index"], "") + piece
    return pieces, shown


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_whole_answers(make_stack, body, profile):
    stack = make_stack({"profile": profile})
    response = stack.post({**body, "n": 3})
    assert response.status_code == 200
    answer = response.json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [text_of(choice) for choice in answer["choices"]] == texts(body, 3)
    assert len(set(texts(body, 3))) == 3, "a test that could not tell them apart"
    prompt, completion_tokens = len(prompt_token_ids(body)), tokens(body, 3)
    assert answer["usage"]["prompt_tokens"] == prompt
    assert answer["usage"]["completion_tokens"] == completion_tokens
    assert answer["usage"]["total_tokens"] == prompt + completion_tokens
    assert len(response.headers.get_list("x-request-id")) == 1
    legs = [leg.json() for leg in stack.requests("context")]
    assert sorted(leg["seed"] for leg in legs) == [SEED, SEED + 1, SEED + 2]
    assert not any("n" in leg for leg in legs)
    assert len({leg["disaggregated_params"]["disagg_request_id"] for leg in legs}) == 3
    assert {leg.header("x-request-id") for leg in stack.requests("context")} == {
        response.headers["x-request-id"]
    }
    assert not response.text.count("disaggregated_params")


@pytest.mark.parametrize("usage", [True, False])
def test_streams(stack, body, usage):
    asked = {**body, "n": 3, "stream": True, "stream_options": {"include_usage": usage}}
    pieces, shown = streamed(stack.post(asked).text)
    assert pieces == dict(enumerate(texts(body, 3)))
    assert shown.count("[DONE]") == 1
    assert shown[-1] == "[DONE]"
    assert len({event["id"] for event in shown[:-1]}) == 1
    told = [event["usage"] for event in shown[:-1] if event.get("usage")]
    if usage:
        assert told == [shown[-2]["usage"]]
        assert told[0]["completion_tokens"] == tokens(body, 3)
    else:
        assert told == []


def test_the_best_of_several(stack):
    body = completion(seed=SEED, n=2, best_of=4)
    answer = stack.post(body).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert {text_of(choice) for choice in answer["choices"]} < set(texts(completion(), 4))
    assert [choice["logprobs"] for choice in answer["choices"]] == [None, None]
    assert len(stack.requests("generation")) == 4
    assert answer["usage"]["completion_tokens"] == tokens(completion(), 4)


def test_one_choice_is_an_ordinary_request(stack, body):
    assert answer_text(stack.post({**body, "n": 1}).json()) == expected_text(body)
    assert stack.only_request("context").json()["n"] == 1


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_of_one_worker_is_the_answer(stack, body, stream):
    """Its text is an API: clients look for words in it."""
    refusal = '{"message": "context length exceeded"}'
    stack.expected_leftover = 0
    stack.most_leftover = 3
    stack.cluster.context_workers[0].add_fault(kind="status", status=400, body=refusal, count=1)
    response = stack.post({**body, "n": 3, "stream": stream})
    if not stream or response.headers["content-type"].startswith("application/json"):
        assert (response.status_code, response.text) == (400, refusal)
    else:
        assert events(response.text)[-1] == {"error": json.loads(refusal)}, "another choice had begun"
    assert len(response.headers.get_list("x-request-id")) == 1


@pytest.mark.parametrize("keep_alive", [0, 0.05])
def test_an_error_of_one_worker_behind_the_beginning_of_the_stream(make_stack, body, keep_alive):
    """The others are not waited for, and the request is no success."""
    stack = make_stack({"speed": {"decode_ms": 20}}, sse_keepalive_seconds=keep_alive)
    stack.most_leftover = 3
    slow = {"kind": "slow_first_byte", "seconds": 0.3, "count": 1}
    refusal = '{"message": "context length exceeded"}'
    refused = {"kind": "status", "status": 400, "body": refusal, "count": 1}
    for fault in (slow, refused):
        stack.cluster.generation_workers[0].add_fault(leg="generation", **fault)
    before = stack.metric("requests_total", outcome="rejected")
    response = stack.post({**body, "max_tokens": 400, "ignore_eos": True, "n": 3, "stream": True})
    frames = [frame for frame in response.text.split("\n\n") if frame and not frame.startswith(":")]
    assert json.loads(frames[-1].removeprefix("data: ")) == {"error": json.loads(refusal)}
    assert len(frames) > 1
    eventually(lambda: stack.metric("requests_total", outcome="rejected") == before + 1, what="the count")


def test_a_worker_that_dies_inside_a_stream(stack, body):
    stack.most_leftover = 3
    stack.cluster.generation_workers[0].add_fault(kind="cut", after_events=4, count=1)
    before = stack.metric("requests_total", outcome="error")
    response = stack.post({**body, "n": 3, "stream": True, "max_tokens": 400, "ignore_eos": True})
    shown = events(response.text)
    assert shown[-1]["error"]["type"]
    assert sum("error" in event for event in shown if event != "[DONE]") == 1
    assert "[DONE]" not in shown
    assert stack.metric("requests_total", outcome="error") == before + 1


def test_a_client_that_leaves_ends_all_legs(make_stack, body):
    stack = make_stack({"speed": {"decode_ms": 20.0}})
    stack.most_leftover = 3
    client = RawClient(stack.port)
    client.send(request({**body, "n": 3, "stream": True, "max_tokens": 5000, "ignore_eos": True}))
    client.read_until(b"data: ")
    eventually(lambda: len(stack.requests("generation")) == 3, what="three legs")
    client.socket.close()
    engines = [worker.engine for worker in stack.cluster.workers]
    eventually(lambda: not any(engine.running for engine in engines), what="no running legs")


def test_abort_by_id_ends_all_legs(make_stack, body):
    stack = make_stack({"speed": {"decode_ms": 20.0}})
    stack.most_leftover = 3
    client = RawClient(stack.port)
    long = {**body, "n": 3, "stream": True, "max_tokens": 5000, "ignore_eos": True}
    client.send(request(long, "x-request-id: to-be-aborted"))
    client.read_until(b"data: ")
    eventually(lambda: len(stack.requests("generation")) == 3, what="three legs")
    abort = stack.server.service.admission.abort_requests
    stack.server.loop.call_soon_threadsafe(
        abort, frozenset({"to-be-aborted"}), lambda: RequestAborted("the request was aborted as asked")
    )
    client.read_until(b'"error"')
    engines = [worker.engine for worker in stack.cluster.workers]
    eventually(lambda: not any(engine.running for engine in engines), what="no running legs")
    client.socket.close()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": "2"}, "n"),
        ({"best_of": 200}, "n"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"n": 2, "use_beam_search": True}, "use_beam_search"),
    ],
)
def test_what_cannot_be_made(stack, body, fields, param):
    response = stack.post({**body, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert stack.requests("context") == []


def test_refused_if_the_operator_says_so(make_stack, body):
    stack = make_stack(several_choices="refuse")
    assert stack.post({**body, "n": 2}).json()["error"]["param"] == "n"


def test_left_to_the_workers_if_the_operator_says_so(make_stack, body):
    stack = make_stack(several_choices="pass")
    answer = stack.post({**body, "n": 2}).json()
    assert stack.only_request("context").json()["n"] == 2
    assert stack.only_request("generation").json()["n"] == 2
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


def test_a_limit_of_the_operators(make_stack, body):
    stack = make_stack(max_choices=2)
    assert stack.post({**body, "n": 2}).status_code == 200
    response = stack.post({**body, "n": 3})
    assert "at most 2" in response.json()["error"]["message"]


def test_more_choices_than_places(make_stack, body):
    """Each waits for its own; nobody holds a place while waiting for another."""
    stack = make_stack(max_inflight=2)
    answer = stack.post({**body, "n": 6}).json()
    assert [text_of(choice) for choice in answer["choices"]] == texts(body, 6)


def test_token_ids_of_each_choice(stack):
    body = completion(seed=SEED, n=2, return_token_ids=True, detokenize=False)
    answer = stack.post(body).json()
    assert answer["prompt_token_ids"] == prompt_token_ids(completion())
    expected = [list(expected_answers({**completion(), "seed": SEED + n})[0].token_ids) for n in range(2)]
    assert [choice["token_ids"] for choice in answer["choices"]] == expected


def test_the_openai_library(stack):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="x", max_retries=0) as sdk:
        body = chat(seed=SEED, max_tokens=400)
        answer = sdk.chat.completions.create(**body, n=2)
        assert [choice.message.content for choice in answer.choices] == texts(body, 2)
        with sdk.chat.completions.stream(**body, n=2) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        assert [choice.message.content for choice in final.choices] == texts(body, 2)


def test_timing_and_dropped_fields_are_told_once(stack, body):
    response = stack.post({**body, "n": 2, "store": True})
    assert response.headers["x-disagg-proxy-dropped"] == "store"
    assert len(response.headers.get_list("server-timing")) == 1
    assert json.loads(response.text)["choices"]


def test_the_path_is_the_usual_one(stack, body):
    assert stack.post({**body, "n": 2}).status_code == 200
    assert {leg.path for leg in stack.requests("generation")} == {path_of(body)}
