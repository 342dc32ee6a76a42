"""What the wire tests share: sample answers, random JSON texts, and settings for property tests."""

import base64
import json
import random
import struct
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from proxy.wire.members import Members, split_object

# The same examples on every run: a red test in CI must be red on a desk as well.
properties = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

REQUEST_ID = 1234567890123456789  # above 2^53


def dump(value: object) -> bytes:
    """Compact UTF-8 JSON, as the workers write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def members(**values: object) -> Members:
    return split_object(dump(values))


def base64_ids(ids: list[int]) -> str:
    return base64.b64encode(struct.pack(f"<{len(ids)}i", *ids)).decode()


def parameters(**changes: object) -> dict[str, Any]:
    """`disaggregated_params` of a context answer; a value of ... removes the key."""
    full = {
        "request_type": "context_only",
        "first_gen_tokens": [727],
        "first_gen_log_probs": None,
        "first_gen_logits": None,
        "ctx_request_id": REQUEST_ID,
        "encoded_opaque_state": "AAECAw==",
        "draft_tokens": None,
        "disagg_request_id": REQUEST_ID,
        "ctx_dp_rank": 0,
        "ctx_info_endpoint": "tcp://10.0.0.5:40111",
        "schedule_style": 0,
        "ctx_usage": None,
        "return_prompt_token_ids_b64": False,
        "resolved_thinking": None,
        **changes,
    }
    return {name: value for name, value in full.items() if value is not ...}


USAGE = {
    "prompt_tokens": 41,
    "total_tokens": 42,
    "completion_tokens": 1,
    "prompt_tokens_details": {"cached_tokens": 32},
}


def chat_answer(
    *,
    finish_reason: str | None = "not_finished",
    params: object = ...,
    message: object = ...,
    **changes: object,
) -> dict[str, Any]:
    """A chat answer of a context worker, nulls included; a value of ... removes a member."""
    answer = {
        "id": "chatcmpl-1b2c",
        "object": "chat.completion",
        "created": 1764430000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Blue",
                    "reasoning_content": "",
                    "reasoning": None,
                    "tool_calls": [],
                }
                if message is ...
                else message,
                "logprobs": None,
                "finish_reason": finish_reason,
                "stop_reason": None,
                "mm_embedding_handle": None,
                "disaggregated_params": parameters() if params is ... else params,
                "avg_decoded_tokens_per_iter": None,
            }
        ],
        "usage": USAGE,
        "prompt_token_ids": [1, 733, 16289, 28793],
        "prompt_token_ids_b64": None,
        **changes,
    }
    return {name: value for name, value in answer.items() if value is not ...}


# Random JSON. Lone surrogates are left out: neither msgspec nor the workers take them.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = texts | st.sampled_from(
    ["model", "prompt_token_ids", 'x"prompt_token_ids_b64":"', "disaggregated_params"]
)
integers = st.integers(-(10**25), 10**25) | st.sampled_from([2**53 + 1, 2**63 - 1, -1, 0])
values = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
seeds = st.integers(0, 2**32)


class Writer:
    """Writes JSON with random blanks and random spellings of characters."""

    def __init__(self, seed: int, *, blanks: bool = True) -> None:
        self._random = random.Random(seed)
        self._blanks = blanks

    def blank(self) -> str:
        return self._random.choice(["", "", "", " ", "\n", "\t", "\r\n  "]) if self._blanks else ""

    def text(self, text: str) -> str:
        mode = self._random.randrange(3)  # UTF-8, ASCII with escapes, or everything escaped
        if mode < 2:
            return json.dumps(text, ensure_ascii=bool(mode))
        units = text.encode("utf-16-be")
        return '"' + "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)) + '"'

    def value(self, value: object) -> str:
        if isinstance(value, dict):
            return self.pairs(list(value.items()))
        if isinstance(value, list):
            return "[" + ",".join(self.padded(self.value(item)) for item in value) + self.blank() + "]"
        return self.text(value) if isinstance(value, str) else json.dumps(value)

    def padded(self, text: str) -> str:
        return self.blank() + text + self.blank()

    def pairs(self, pairs: list[tuple[str, object]]) -> str:
        """An object; names may repeat."""
        inner = ",".join(
            self.padded(self.text(name) + self.blank() + ":" + self.padded(self.value(value)))
            for name, value in pairs
        )
        return "{" + (inner or self.blank()) + "}"

    def document(self, value: object) -> bytes:
        return self.padded(self.value(value)).encode()
