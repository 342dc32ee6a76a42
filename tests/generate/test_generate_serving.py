"""Tokens in, tokens out, through both legs."""

import asyncio
import json

import pytest
from controlled_proxy import controlled
from running_proxy import eventually, running_proxy

from proxy.sim import Speed, expected_text
from proxy.sim.answer import expected_answers
from proxy.sim.logprobs import logprob_of
from proxy.sim.tokens import count_ids, tokenize

IDS = [11, 22, 33, 44, 55]
SGLANG, VLLM = "/generate", "/inference/v1/generate"
# Answered by the sim in full whatever the prompt.
SAMPLING = {"max_new_tokens": 12, "ignore_eos": True}


def expected(prompt, **fields):
    (answer,) = expected_answers({"prompt": prompt, "max_tokens": 12, "ignore_eos": True, **fields})
    return answer


def events_of(text):
    payloads = [line.removeprefix("data: ") for line in text.split("\n") if line]
    assert payloads.pop() == "[DONE]"
    return [json.loads(payload) for payload in payloads]


@pytest.fixture(params=["own", "uvicorn"])
def kind(request):
    return request.param


async def test_ids_in_ids_out(kind):
    async with running_proxy(kind=kind) as proxy:
        body = {"rid": "r-1", "input_ids": IDS, "sampling_params": SAMPLING, "return_logprob": True}
        answer = await proxy.client.post(SGLANG, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-request-id"] == "r-1"
        tokens = list(expected(IDS).token_ids)
        told = answer.json()
        assert told["meta_info"].pop("e2e_latency") > 0
        assert told == {
            "text": "",
            "output_ids": tokens,
            "meta_info": {
                "id": "r-1",
                "finish_reason": {"type": "length", "length": 12},
                "prompt_tokens": len(IDS),
                "completion_tokens": 12,
                "cached_tokens": 0,
                # The first one comes from the context worker.
                "output_token_logprobs": [[logprob_of(token), token, None] for token in tokens],
                "output_token_logprobs_length": 12,
            },
        }
        assert (proxy.legs("context"), proxy.legs("generation")) == (1, 1)
        (sent,) = proxy.cluster.generation_workers[0].requests
        assert sent.path == "/v1/completions"
        assert sent.header("x-request-id") == "r-1"
        proxy.assert_settled()


@pytest.mark.parametrize("logprobs", [False, True])
async def test_a_stream_repeats_what_was_generated(kind, logprobs):
    async with running_proxy(kind=kind, cluster={"speed": Speed(decode_ms=3)}) as proxy:
        body = {
            "input_ids": IDS,
            "sampling_params": SAMPLING,
            "stream": True,
            "return_logprob": logprobs,
        }
        answer = await proxy.client.post(SGLANG, json=body)
        assert answer.headers["content-type"].startswith("text/event-stream")
        tokens = list(expected(IDS).token_ids)
        *steps, last = events_of(answer.text)
        assert len(steps) > 1
        lengths = [len(step["output_ids"]) for step in steps]
        assert lengths == sorted(set(lengths))
        for step in (*steps, last):
            count = len(step["output_ids"])
            assert step["output_ids"] == tokens[:count]
            assert step["meta_info"]["completion_tokens"] == count
            assert step["meta_info"]["prompt_tokens"] == len(IDS)
            shown = step["meta_info"].get("output_token_logprobs")
            wanted = [[logprob_of(token), token, None] for token in tokens[:count]]
            assert shown == (wanted if logprobs else None)
        assert all(step["meta_info"]["finish_reason"] is None for step in steps)
        assert last["output_ids"] == tokens
        assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 12}
        proxy.assert_settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_text_in_text_out(stream):
    async with running_proxy() as proxy:
        body = {"text": "once upon a time", "sampling_params": {"max_new_tokens": 40}, "stream": stream}
        answer = await proxy.client.post(SGLANG, json=body)
        told = events_of(answer.text)[-1] if stream else answer.json()
        assert told["text"] == expected_text({"prompt": body["text"], "max_tokens": 40})
        assert told["output_ids"] == []
        assert told["meta_info"]["finish_reason"]["type"] in ("stop", "length")
        assert told["meta_info"]["prompt_tokens"] == count_ids(tokenize(body["text"]))
        assert told["meta_info"]["completion_tokens"] > 0


async def test_what_stopped_it():
    async with running_proxy() as proxy:
        token = expected(IDS).token_ids[4]
        sampling = {**SAMPLING, "stop_token_ids": [token]}
        told = (await proxy.client.post(SGLANG, json={"input_ids": IDS, "sampling_params": sampling})).json()
        assert told["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}


async def test_an_answer_that_the_context_worker_finishes():
    async with running_proxy() as proxy:
        token = expected(IDS).token_ids[0]
        sampling = {**SAMPLING, "stop_token_ids": [token]}
        for stream in (False, True):
            body = {"input_ids": IDS, "sampling_params": sampling, "stream": stream}
            answer = await proxy.client.post(SGLANG, json=body)
            told = events_of(answer.text)[-1] if stream else answer.json()
            assert told["output_ids"] == [token]
            assert told["meta_info"]["finish_reason"] == {"type": "stop", "matched": token}
        assert proxy.legs("generation") == 0


async def test_sampling_parameters_reach_the_workers():
    async with running_proxy() as proxy:
        sampling = {
            "max_new_tokens": 3,
            "min_new_tokens": 1,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": -1,
            "stop": ["a", "b"],
            "sampling_seed": 7,
            "no_stop_trim": True,
            "regex": "a+",
            "frequency_penalty": 0.1,
            "custom_params": None,
            "stop_regex": [],
            "n": 1,
        }
        answer = await proxy.client.post(
            SGLANG, json={"input_ids": IDS, "sampling_params": sampling, "log_metrics": True}
        )
        assert answer.status_code == 200, answer.text
        assert "log_metrics" in answer.headers["x-disagg-proxy-dropped"]
        sent = proxy.cluster.context_workers[0].requests[0].json()
        del sent["disaggregated_params"]
        assert sent == {
            "model": "sim",
            "prompt": IDS,
            "max_tokens": 3,
            "min_tokens": 1,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": ["a", "b"],
            "seed": 7,
            "include_stop_str_in_output": True,
            "response_format": {"type": "regex", "regex": "a+"},
            "frequency_penalty": 0.1,
            "detokenize": False,
            "stream": False,
        }
        await proxy.client.post(SGLANG, json={"input_ids": IDS})
        assert proxy.cluster.context_workers[0].requests[1].json()["max_tokens"] == 128


WHAT_CANNOT_BE_DONE_IS_NAMED = [
    ({"input_ids": IDS, "sampling_params": {"dry_multiplier": 1}}, "sampling_params.dry_multiplier"),
    ({"input_ids": IDS, "sampling_params": {"custom_params": {"a": 1}}}, "sampling_params.custom_params"),
    ({"input_ids": IDS, "sampling_params": {"stream_interval": True}}, "sampling_params.stream_interval"),
    ({"input_ids": IDS, "sampling_params": {"n": 2}}, "sampling_params.n"),
    ({"input_ids": IDS, "sampling_params": []}, "sampling_params"),
    ({"input_ids": IDS, "text": "a"}, "text"),
    ({}, "text"),
    ({"input_ids": [IDS, IDS]}, "input_ids"),
    ({"input_ids": []}, "input_ids"),
    ({"input_ids": "abc"}, "input_ids"),
    ({"text": ["a"]}, "text"),
    ({"text": "a", "rid": ["a"]}, "rid"),
    ({"text": "a", "rid": "a b"}, "rid"),
    ({"text": "a", "stream": "yes"}, "stream"),
    ({"text": "a", "return_logprob": 1}, "return_logprob"),
    ({"text": "a", "top_logprobs_num": 2}, "top_logprobs_num"),
    ({"text": "a", "logprob_start_len": 0}, "logprob_start_len"),
    ({"text": "a", "image_data": ["x"]}, "image_data"),
    ({"text": "a", "return_hidden_states": True}, "return_hidden_states"),
    ({"text": "a", "n": 2}, "n"),
    ({"text": "a", "n": True}, "n"),
    ({"text": "a", "best_of": 2}, "best_of"),
]


async def test_what_cannot_be_done_is_named():
    async with running_proxy() as proxy:
        for body, param in WHAT_CANNOT_BE_DONE_IS_NAMED:
            answer = await proxy.client.post(SGLANG, json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
            assert proxy.legs("context") == 0


async def test_values_that_cannot_be_read():
    """Raw slices are not checked before they are looked at."""
    members = [b'"rid":', b'"stream":', b'"image_data":', b'"sampling_params":{"n":']
    async with running_proxy() as proxy:
        for member in members:
            for value in (b'"\xff"', b"1" + b"0" * 5000, b"1e999", b"[" * 900 + b"]" * 900):
                ends = b"}" * (1 + member.count(b"{"))
                answer = await proxy.client.post(SGLANG, content=b'{"text":"a",' + member + value + ends)
                assert answer.status_code == 400, (member, value[:20], answer.text)
                assert answer.json()["error"]["param"] in member.decode().replace('":{"', ".")


async def test_no_json_and_encoded_bodies():
    async with running_proxy() as proxy:
        for content in (b"", b"[]", b"{"):
            answer = await proxy.client.post(SGLANG, content=content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
        answer = await proxy.client.post(SGLANG, content=b"x", headers={"content-encoding": "gzip"})
        assert answer.status_code == 415


@pytest.mark.parametrize("stream", [False, True])
async def test_a_workers_refusal_passes_as_it_is(stream):
    async with running_proxy(max_retries=0) as proxy:
        for worker in proxy.cluster.workers:
            worker.board.add({"kind": "status", "status": 400, "body": '{"error": "bad"}'})
        answer = await proxy.client.post(SGLANG, json={"input_ids": IDS, "stream": stream})
        assert (answer.status_code, answer.json()) == (400, {"error": "bad"})


async def test_a_stream_that_breaks_off_says_so(kind):
    async with running_proxy(kind=kind) as proxy:
        proxy.cluster.generation_workers[0].board.add({"kind": "cut", "after_events": 3, "leg": "generation"})
        body = {"input_ids": IDS, "sampling_params": SAMPLING, "stream": True}
        answer = await proxy.client.post(SGLANG, json=body)
        last = json.loads(answer.text.strip().rsplit("data: ", 1)[1])
        assert last["error"]["code"] == "worker_disconnected"


async def test_a_client_that_leaves_ends_the_leg(kind):
    async with running_proxy(kind=kind, cluster={"speed": Speed(decode_ms=10)}) as proxy:
        body = {"input_ids": IDS, "sampling_params": {**SAMPLING, "max_new_tokens": 2000}, "stream": True}
        async with proxy.client.stream("POST", SGLANG, json=body) as answer:
            await anext(answer.aiter_bytes())
        await eventually(lambda: not proxy.service.admission.in_flight)
        await eventually(lambda: not any(worker.engine.running for worker in proxy.cluster.workers))
        proxy.assert_settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_abort_is_an_answer(stream):
    async with controlled(cluster={"speed": Speed(decode_ms=10)}) as (proxy, admin):
        body = {
            "rid": "x",
            "input_ids": IDS,
            "sampling_params": {**SAMPLING, "max_new_tokens": 2000},
            "stream": stream,
        }
        task = asyncio.create_task(proxy.client.post(SGLANG, json=body))
        await eventually(lambda: proxy.legs("generation") == 1)
        assert (await admin.post("/abort_request", json={"rid": "x"})).json() == {"aborted": 1}
        answer = await task
        assert answer.status_code == 200
        told = events_of(answer.text)[-1] if stream else answer.json()
        assert told["meta_info"]["finish_reason"]["type"] == "abort"
        assert told["meta_info"]["id"] == "x"
        proxy.assert_settled()


async def test_an_abort_in_the_queue_is_an_answer():
    async with controlled() as (proxy, admin):
        await admin.post("/pause")
        tasks = [
            asyncio.create_task(proxy.client.post(SGLANG, json={"input_ids": IDS, "stream": stream}))
            for stream in (False, True)
        ]
        await eventually(lambda: proxy.service.admission.queued == 2)
        await admin.post("/abort_request", json={"abort_all": True})
        whole, streamed = [await task for task in tasks]
        assert whole.json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert events_of(streamed.text)[0]["meta_info"]["finish_reason"]["type"] == "abort"


async def test_comments_pass():
    async with running_proxy(sse_keepalive_seconds=0.05) as proxy:
        proxy.cluster.context_workers[0].board.add(
            {"kind": "slow_first_byte", "seconds": 0.2, "leg": "context"}
        )
        answer = await proxy.client.post(SGLANG, json={"input_ids": IDS, "stream": True})
        assert answer.text.startswith(": keep-alive\n\n")
        assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("logprobs", [None, 0, 1])
async def test_vllms_shape(logprobs):
    async with running_proxy() as proxy:
        sampling = {"max_tokens": 12, "ignore_eos": True, "logprobs": logprobs, "output_kind": 2}
        body = {
            "request_id": "v-1",
            "model": "sim",
            "token_ids": IDS,
            "sampling_params": sampling,
            "stream": False,
        }
        answer = await proxy.client.post(VLLM, json=body)
        assert answer.status_code == 200, answer.text
        tokens = list(expected(IDS).token_ids)
        content = [
            {"token": f"token_id:{token}", "logprob": logprob_of(token), "bytes": None, "top_logprobs": []}
            for token in tokens
        ]
        assert answer.json() == {
            "request_id": "v-1",
            "choices": [
                {
                    "index": 0,
                    "logprobs": None if logprobs is None else {"content": content},
                    "finish_reason": "length",
                    "token_ids": tokens,
                }
            ],
            "prompt_logprobs": None,
            "kv_transfer_params": None,
        }


WHAT_VLLMS_SHAPE_CANNOT = [
    ({"sampling_params": {}}, "token_ids"),
    ({"token_ids": IDS, "stream": True}, "stream"),
    ({"token_ids": IDS, "cache_salt": "a"}, "cache_salt"),
    ({"token_ids": IDS, "n": 2}, "n"),
    ({"token_ids": IDS, "sampling_params": {"logprobs": 5}}, "sampling_params.logprobs"),
    ({"token_ids": IDS, "sampling_params": {"prompt_logprobs": 1}}, "sampling_params.prompt_logprobs"),
    ({"token_ids": IDS, "sampling_params": {"max_new_tokens": 1}}, "sampling_params.max_new_tokens"),
]


async def test_what_vllms_shape_cannot():
    async with running_proxy() as proxy:
        for body, param in WHAT_VLLMS_SHAPE_CANNOT:
            answer = await proxy.client.post(VLLM, json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_one_of_several_models_must_be_named(tmp_path):
    workers = [
        {"url": f"unix:{tmp_path}/{role}-{number}.sock", "role": role, "model": model}
        for role in ("context", "generation")
        for number, model in enumerate(("a", "b"))
    ]
    cluster = {"context": 2, "generation": 2, "unix_directory": str(tmp_path)}
    async with running_proxy(cluster=cluster, workers=workers) as proxy:
        answer = await proxy.client.post(SGLANG, json={"input_ids": IDS})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
        answer = await proxy.client.post(SGLANG, json={"input_ids": IDS, "model": "b"})
        assert answer.status_code == 200
        assert proxy.cluster.worker("generation-1").legs["generation"] == 1
    async with running_proxy(model_aliases={"small": "sim"}) as proxy:
        # An alias is no second model.
        assert (await proxy.client.post(SGLANG, json={"input_ids": IDS})).status_code == 200


async def test_the_route_is_counted_under_its_own_name():
    async with running_proxy() as proxy:
        body = {"input_ids": IDS, "sampling_params": SAMPLING, "stream": True}
        await proxy.client.post(SGLANG, json=body)
        metrics = (await proxy.client.get("/metrics")).text
        labels = 'model="sim",outcome="ok",route="/generate",stream="true"'
        assert f"disagg_proxy_requests_total{{{labels}}} 1.0" in metrics
