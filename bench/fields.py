"""Time of the field policy on ordinary requests: `python -m bench.fields`.

Limits: 15 us on 1 KB, 100 us on 160 KB.
"""

import json
import timeit

from bench.payloads import WORDS
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.policy import FieldPolicy
from proxy.wire.members import Members, split_object
from proxy.wire.versions import WorkerVersion

_TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file of the working directory.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def _prose(size: int) -> str:
    text = " ".join(WORDS)
    return (text * (size // len(text) + 1))[:size]


def _conversation(size: int, turns: int) -> list[dict[str, object]]:
    part = _prose(size // (2 * turns + 1))
    messages: list[dict[str, object]] = [{"role": "system", "content": part}]
    for _ in range(turns):
        messages += [{"role": "user", "content": part}, {"role": "assistant", "content": part}]
    return messages


def _agent(size: int, turns: int) -> list[dict[str, object]]:
    part = _prose(size // (2 * turns + 2))
    messages: list[dict[str, object]] = [
        {"role": "system", "content": part},
        {"role": "user", "content": part},
    ]
    for turn in range(turns):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path":"a"}'},
        }
        messages += [
            {"role": "assistant", "content": part, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": part},
        ]
    return messages


def _bundled(size: int, turns: int) -> list[dict[str, object]]:
    messages = _conversation(size, turns)
    for message in messages[2::2]:
        message |= {
            "prompt_token_ids": [1] * 200,
            "generation_token_ids": [1] * 200,
            "generation_log_probs": [-0.5],
        }
    return messages


_SAMPLING = {"temperature": 0.7, "top_p": 0.95, "stream": True, "stream_options": {"include_usage": True}}
CASES: dict[str, dict[str, object]] = {
    "1 KB": {"messages": _conversation(800, 1), "max_tokens": 128, **_SAMPLING},
    "1 KB, ten dropped, two translated": {
        "messages": _conversation(600, 1),
        "max_completion_tokens": 128,
        "top_k": -1,
        **_SAMPLING,
        **dict.fromkeys(("store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"), "x"),
        **dict.fromkeys(("return_token_ids", "stream_interval", "rid", "tool_stream", "keep_alive"), 1),
    },
    "8 KB with 20 tools": {"messages": _conversation(2_000, 1), "tools": [_TOOL] * 20, **_SAMPLING},
    "160 KB": {"messages": _conversation(160_000, 20), "max_tokens": 128, **_SAMPLING},
    "160 KB in two messages": {"messages": _conversation(160_000, 1), "max_tokens": 128, **_SAMPLING},
    "160 KB, 60 tool calls": {"messages": _agent(160_000, 60), "tools": [_TOOL] * 20, **_SAMPLING},
    "160 KB, 20 bundles to remove": {"messages": _bundled(130_000, 20), "max_tokens": 128, **_SAMPLING},
    "1 MB": {"messages": _conversation(1_000_000, 20), "max_tokens": 128, **_SAMPLING},
}


def microseconds(policy: FieldPolicy, members: Members) -> float:
    """The best of several runs."""
    number = max(20, 200_000 // max(1, sum(len(memoryview(value)) for value in members.values())))
    return min(timeit.repeat(lambda: policy.apply(members), number=number, repeat=7)) / number * 1e6


def main() -> None:
    policy = FieldPolicy(ACCEPTED[WorkerVersion.JUL], chat=True)
    print(f"{'request':36}{'bytes':>10}{'split us':>10}{'policy us':>11}")
    for name, body in CASES.items():
        text = json.dumps({"model": "m", **body}).encode()
        split = min(timeit.repeat(lambda text=text: split_object(text), number=50, repeat=5)) / 50 * 1e6
        print(f"{name:36}{len(text):>10}{split:>10.1f}{microseconds(policy, split_object(text)):>11.1f}")


if __name__ == "__main__":
    main()
