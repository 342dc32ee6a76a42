"""GuideLLM against one version after the other: it takes one target."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from load_checks import bodies, check_answer, check_bodies, check_report, check_settled, dropped
from load_generators import Report, needs_load_generators, run_guidellm
from running_proxy import RunningProxy

pytestmark = [pytest.mark.long, needs_load_generators]

REQUESTS = 24
TOKENS = 8
LENGTH = {"max_tokens": TOKENS, "ignore_eos": True}
PROMPTS = {"prompt_tokens": 30, "output_tokens": TOKENS}


class Case(NamedTuple):
    """``backend`` and ``data``: GuideLLM's options; ``seen``: what reaches the workers; ``dropped``: what does not."""

    backend: dict[str, Any]
    data: dict[str, Any]
    seen: dict[str, Any]
    dropped: set[str]


CASES = {
    "chat-streamed": Case({}, PROMPTS, LENGTH, set()),
    "completions-streamed": Case(
        {
            "request_format": "/v1/completions",
            "extras": {
                "body": {"temperature": 0.7, "min_tokens": TOKENS, "top_k": -1, "metadata": {"run": "1"}}
            },
        },
        PROMPTS,
        {**LENGTH, "temperature": 0.7, "min_tokens": TOKENS},
        {"top_k", "metadata"},
    ),
    # The first of three turns is a call of a tool, whose result is a turn of its own.
    "conversations": Case({"stream": False}, {**PROMPTS, "turns": 3, "tool_call_turns": 1}, {}, set()),
}


async def run(proxy: RunningProxy, directory: Path, case: Case) -> Report:
    return await run_guidellm(directory, f"http://127.0.0.1:{proxy.port}", case.backend, case.data, REQUESTS)


@pytest.mark.parametrize("name", CASES)
async def test_no_request_fails(steady_proxy: RunningProxy, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    report = await run(steady_proxy, tmp_path, case)
    check_report(report, REQUESTS, streamed=case.backend.get("stream", True))
    check_bodies(steady_proxy, REQUESTS, case.seen)
    if "turns" in case.data:
        conversations = [[message["role"] for message in body["messages"]] for body in bodies(steady_proxy)]
        assert ["user", "assistant", "tool", "assistant", "user", "assistant", "user"] in conversations
    assert await dropped(steady_proxy) == case.dropped
    await check_settled(steady_proxy)


@pytest.mark.parametrize("steady_proxy", ["new"], indirect=True)
async def test_streams_that_break_are_failures(steady_proxy: RunningProxy, tmp_path: Path) -> None:
    """The error event at their end is one for GuideLLM, and tells it why."""
    for worker in steady_proxy.cluster.generation_workers:
        worker.add_fault(kind="cut", after_events=4, count=2)
    report = await run(steady_proxy, tmp_path, CASES["chat-streamed"])
    assert len(report.failed) == 2
    assert all("the worker closed the connection" in reason for reason in report.failed)
    assert len(report.answered) == REQUESTS - 2
    for answered in report.answered:
        check_answer(answered)
    await check_settled(steady_proxy)
