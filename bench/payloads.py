"""Bytes that clients send and workers answer, rendered once before anything is measured."""

import base64
import json
import random
from array import array
from dataclasses import dataclass
from functools import cache

from bench.cases import Case

MODEL = "bench-model"
CREATED = 1764430002
# Eight random bytes' worth of base64 stand for the transceiver state that a context worker returns.
OPAQUE_STATE = base64.b64encode(random.Random(3).randbytes(180)).decode()
_PROSE = (
    "the of to and a in is it you that he was for on are with as they be at one have this from or had by "
    "hot but some what there we can out other were all your when up use word how said an each she which"
)
WORDS = _PROSE.split()


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@cache
def prompt_ids(count: int) -> tuple[int, ...]:
    """Ids as a vocabulary of 128,000 gives them: about six characters each as JSON, 5.3 as base64."""
    source = random.Random(count)
    return tuple(source.randrange(128_000) for _ in range(count))


@cache
def ids_array(count: int) -> bytes:
    return compact(list(prompt_ids(count)))


@cache
def ids_base64(count: int) -> bytes:
    return b'"' + base64.b64encode(array("i", prompt_ids(count)).tobytes()) + b'"'


def _text(source: random.Random, size: int) -> str:
    """Prose with the line breaks and quotation marks that make a JSON reader meet escapes."""
    pieces: list[str] = []
    length = 0
    while length < size:
        word = source.choice(WORDS)
        piece = f'"{word}" ' if len(pieces) % 40 == 39 else word + ("\n" if len(pieces) % 15 == 14 else " ")
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)[:size]


@cache
def client_body(case: Case) -> bytes:
    """A chat request of the case's size: a conversation of 4 KB turns (10 KB for 1 MB), or one short question."""
    source = random.Random(case.body_bytes)
    turn = 10_000 if case.body_bytes >= 1_000_000 else 4_000 if case.body_bytes >= 20_000 else 400
    messages = [{"role": "system", "content": _text(source, min(turn, 300))}]
    spent = 300
    while spent < case.body_bytes - 300:
        size = min(turn, case.body_bytes - 300 - spent)
        messages.append(
            {"role": "user" if len(messages) % 2 else "assistant", "content": _text(source, size)}
        )
        spent += size
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "Go on."})
    return compact(
        {
            "model": MODEL,
            "messages": messages,
            "max_tokens": 256,
            "temperature": 0.7,
            "top_p": 0.95,
            "stream": case.streamed,
        }
    )


def handoff(request_id: int | str, ids_as_base64: bool) -> dict[str, object]:
    """`disaggregated_params` as a context worker returns them: all keys, nulls included."""
    return {
        "request_type": "context_only",
        "first_gen_tokens": [727],
        "first_gen_log_probs": None,
        "first_gen_logits": None,
        "ctx_request_id": request_id,
        "encoded_opaque_state": OPAQUE_STATE,
        "draft_tokens": None,
        "disagg_request_id": request_id,
        "ctx_dp_rank": 0,
        "ctx_info_endpoint": None,
        "schedule_style": 0,
        "ctx_usage": None,
        "return_prompt_token_ids_b64": ids_as_base64,
        "resolved_thinking": None,
    }


def usage(case: Case, completion: int) -> dict[str, object]:
    return {
        "prompt_tokens": case.token_ids,
        "total_tokens": case.token_ids + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _chat(case: Case, content: str, finish: str, params: object, completion: int) -> dict[str, object]:
    return {
        "id": "chatcmpl-77",
        "object": "chat.completion",
        "created": CREATED,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": content,
                    "reasoning_content": "",
                    "reasoning": None,
                    "tool_calls": [],
                },
                "logprobs": None,
                "finish_reason": finish,
                "stop_reason": None,
                "mm_embedding_handle": None,
                "disaggregated_params": params,
                "avg_decoded_tokens_per_iter": None,
            }
        ],
        "usage": usage(case, completion),
        "prompt_token_ids": None,
        "prompt_token_ids_b64": None,
    }


@dataclass(frozen=True, slots=True)
class ContextAnswer:
    """JSON cut at the two places where the request's id goes."""

    before: bytes
    between: bytes
    after: bytes

    @property
    def fixed_bytes(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


@cache
def context_answer(case: Case, as_base64: bool) -> ContextAnswer:
    answer = _chat(case, "Blue", "not_finished", handoff("@ID@", as_base64), 1)
    key = "prompt_token_ids_b64" if as_base64 else "prompt_token_ids"
    answer[key] = "@IDS@"
    text = compact(answer).replace(
        b'"@IDS@"', ids_base64(case.token_ids) if as_base64 else ids_array(case.token_ids)
    )
    before, between, after = text.split(b'"@ID@"')
    return ContextAnswer(before, between, after)


ANSWER_TEXT = _text(random.Random(11), 900).replace('"', "").replace("\n", " ")
DIRECT_ID = 1234567890123456789


@cache
def generation_answer(case: Case) -> bytes:
    """One JSON answer; like the real one it still carries the hand-off in its choice."""
    return compact(_chat(case, ANSWER_TEXT, "stop", handoff(DIRECT_ID, False), 200))


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice: dict[str, object] = {"index": 0, "delta": delta}
    if finish:
        choice["finish_reason"] = finish
    body = {
        "id": "chatcmpl-77",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": MODEL,
        "choices": [choice],
    }
    return b"data: " + compact(body)


@cache
def stream_events(case: Case) -> tuple[bytes, ...]:
    """Role event (a blank before its empty line, as workers send it), content events, [DONE]."""
    count = case.chunks or 64
    contents = [
        _event(
            {"content": " " + WORDS[number % len(WORDS)], "reasoning_content": ""},
            "stop" if number == count - 1 and case.chunks else None,
        )
        + b"\n\n"
        for number in range(count)
    ]
    return (_event({"role": "assistant"}) + b" \n\n", *contents, b"data: [DONE]\n\n")


def stream_bytes(case: Case) -> int:
    """Body bytes of the whole streamed answer, without HTTP framing."""
    return sum(map(len, stream_events(case)))


def _leg(case: Case, members: dict[str, object]) -> bytes:
    return compact({**json.loads(client_body(case)), **members})


@cache
def direct_context_body(case: Case, dialect: str, as_base64: bool) -> bytes:
    """The context leg as a proxy would send it, for the measurement of the workers' own time."""
    if dialect == "trtllm":
        params = {
            "request_type": "context_only",
            "disagg_request_id": DIRECT_ID,
            "schedule_style": 0,
            "return_prompt_token_ids_b64": as_base64,
        }
        return _leg(case, {"stream": False, "disaggregated_params": params})
    return _leg(case, _OTHER_DIALECTS[dialect])


@cache
def generation_leg_body(case: Case, dialect: str, as_base64: bool) -> bytes:
    """The generation leg as a proxy would send it."""
    if dialect != "trtllm":
        return _leg(case, _OTHER_DIALECTS[dialect])
    params = {**handoff(DIRECT_ID, as_base64), "request_type": "generation_only", "ctx_usage": usage(case, 1)}
    key, value = (
        ("prompt_token_ids_b64", ids_base64(case.token_ids))
        if as_base64
        else ("prompt_token_ids", ids_array(case.token_ids))
    )
    return _leg(case, {"disaggregated_params": params, key: "@IDS@"}).replace(b'"@IDS@"', value)


_OTHER_DIALECTS: dict[str, dict[str, object]] = {
    "sglang": {"bootstrap_host": "127.0.0.1", "bootstrap_port": 9000, "bootstrap_room": DIRECT_ID},
    "vllm": {"kv_transfer_params": {"do_remote_decode": False, "remote_block_ids": [1000, 1001]}},
    "plain": {},
}
