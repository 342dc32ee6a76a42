"""Whole HTTP answers of the workers, rendered before the first request."""

import re

from bench.cases import Case
from bench.openapi import document
from bench.payloads import (
    MODEL,
    ContextAnswer,
    compact,
    context_answer,
    generation_answer,
    stream_events,
    usage,
)

# The headers a worker on uvicorn sends.
_HEAD = b"date: Tue, 25 Nov 2025 10:00:00 GMT\r\nserver: uvicorn\r\n"
_JSON = b"HTTP/1.1 200 OK\r\n" + _HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
_SSE = (
    b"HTTP/1.1 200 OK\r\n"
    + _HEAD
    + b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_REQUEST_ID = re.compile(rb'"disagg_request_id"\s*:\s*(\d+)')
_AS_BASE64 = re.compile(rb'"return_prompt_token_ids_b64"\s*:\s*true')


def json_answer(body: bytes) -> bytes:
    return _JSON % len(body) + body


def error_answer(status: bytes, message: str) -> bytes:
    body = compact(
        {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    )
    return b"HTTP/1.1 %s\r\n" % status + _HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


def chunk_frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class StreamAnswer:
    """A streamed answer: what is written at once, then the frames, then the end."""

    __slots__ = ("burst", "end", "frames", "start")

    def __init__(self, case: Case) -> None:
        role, *contents, done = map(chunk_frame, stream_events(case))
        self.start = _SSE + role
        self.frames = tuple(contents)
        self.end = done + b"0\r\n\r\n"
        self.burst = b"".join((self.start, *self.frames, self.end))


class TensorRTContext:
    """Context answers of a TensorRT-LLM worker: the request's id spliced into rendered JSON."""

    __slots__ = ("_answers",)

    def __init__(self, case: Case) -> None:
        self._answers = {flag: context_answer(case, flag) for flag in (False, True)}

    def pieces(self, body: bytes) -> list[bytes] | None:
        """The answer's bytes, or None without `disagg_request_id`.

        Looks at both ends first: nearly every proxy appends its member, some put it in front.
        """
        for part in (body[-1024:], body[:1024], body):
            found = _REQUEST_ID.search(part)
            if found:
                break
        else:
            return None
        near = part[max(0, found.start() - 512) : found.end() + 512]
        answer: ContextAnswer = self._answers[_AS_BASE64.search(near) is not None]
        number = found.group(1)
        head = _JSON % (answer.fixed_bytes + 2 * len(number))
        return [head, answer.before, number, answer.between, number, answer.after]


def vllm_context(case: Case) -> bytes:
    """Prefill answer of a vLLM worker: one block id for each 16 tokens instead of the tokens."""
    blocks = list(range(1000, 1000 + -(-case.token_ids // 16)))
    return json_answer(_short_answer(case, blocks))


def sglang_context(case: Case) -> bytes:
    """Prefill answer of an SGLang worker: nothing the router needs."""
    return json_answer(_short_answer(case, None))


def _short_answer(case: Case, blocks: list[int] | None) -> bytes:
    answer: dict[str, object] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764430000,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Blue"},
                "logprobs": None,
                "finish_reason": "length",
            }
        ],
        "usage": usage(case, 1),
    }
    if blocks is not None:
        answer["kv_transfer_params"] = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": blocks,
            "remote_engine_id": "8f3c1b1e-0000-4000-8000-0123456789ab",
            "remote_host": "127.0.0.1",
            "remote_port": 5600,
        }
    return compact(answer)


def generation_json(case: Case) -> bytes:
    return json_answer(generation_answer(case))


def control_routes(owner: str) -> dict[bytes, bytes]:
    """What proxies ask workers about beside requests."""
    models = {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 1764430000, "owned_by": owner}],
    }
    return {
        b"/health": json_answer(b""),
        b"/health_generate": json_answer(b'"OK"'),
        b"/version": json_answer(compact({"version": "1.3.0rc24"})),
        b"/v1/models": json_answer(compact(models)),
        b"/metrics": json_answer(b"[]"),
        b"/server_info": json_answer(
            compact({"disaggregated_params": {}, "max_batch_size": 256, "tokens_per_block": 32})
        ),
        # The two routes below are SGLang's.
        b"/get_server_info": json_answer(
            compact(
                {
                    "model_path": MODEL,
                    "served_model_name": MODEL,
                    "tp_size": 1,
                    "dp_size": 1,
                    "version": "0.5.6",
                }
            )
        ),
        b"/get_model_info": json_answer(
            compact({"model_path": MODEL, "tokenizer_path": MODEL, "is_generation": True})
        ),
        b"/model_info": json_answer(
            compact({"model_path": MODEL, "tokenizer_path": MODEL, "is_generation": True})
        ),
        b"/openapi.json": json_answer(document()),
    }
