"""AIPerf against all versions in one run: it goes round its `--url`s."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from load_checks import bodies, check_answer, check_bodies, check_report, check_settled, dropped
from load_generators import Report, needs_load_generators, run_aiperf
from running_proxy import RunningProxy

pytestmark = [pytest.mark.long, needs_load_generators]

REQUESTS = 36
TOKENS = 8
FULL_LENGTH = {"ignore_eos": True, "min_tokens": TOKENS}


class Case(NamedTuple):
    """``extra``: members that AIPerf adds to its requests; ``seen``: what reaches the workers beside the length;
    ``dropped``: what the tables leave out."""

    options: str
    extra: dict[str, Any] = FULL_LENGTH
    seen: dict[str, Any] = FULL_LENGTH
    dropped: frozenset[str] = frozenset()


CASES = {
    "chat-streamed": Case(
        "--endpoint-type chat --streaming --use-server-token-count --per-chunk-usage",
        {**FULL_LENGTH, "temperature": 0.7, "top_k": -1, "store": False},
        {**FULL_LENGTH, "temperature": 0.7},
        frozenset({"top_k", "store"}),
    ),
    "chat-dynamo": Case(
        "--endpoint-type chat --streaming --use-legacy-max-tokens",
        {"nvext": {"ignore_eos": True, "annotations": ["llm_metrics"]}},
        {"ignore_eos": True},
        frozenset({"nvext.annotations"}),
    ),
    "completions-streamed": Case(
        "--endpoint-type completions --streaming --connection-reuse-strategy never",
        {**FULL_LENGTH, "metadata": {"run": "1"}, "user": "u"},
        {**FULL_LENGTH, "user": "u"},
        frozenset({"metadata"}),
    ),
    "completions": Case("--endpoint-type completions"),
}


async def profile(
    proxies: list[RunningProxy], directory: Path, options: str, extra: dict[str, Any]
) -> Report:
    urls = [f"http://127.0.0.1:{proxy.port}" for proxy in proxies]
    fixed = f"--concurrency 4 --isl 40 --osl {TOKENS} --extra-inputs".split()
    return await run_aiperf(directory, urls, *fixed, json.dumps(extra), *options.split())


@pytest.mark.parametrize("name", CASES)
async def test_single_requests(proxies: list[RunningProxy], tmp_path: Path, name: str) -> None:
    case = CASES[name]
    report = await profile(proxies, tmp_path, f"{case.options} --request-count {REQUESTS}", case.extra)
    check_report(report, REQUESTS, streamed="--streaming" in case.options)
    for proxy in proxies:
        check_bodies(proxy, REQUESTS // len(proxies), {"max_tokens": TOKENS, **case.seen})
        assert await dropped(proxy) == case.dropped
        await check_settled(proxy)


async def test_conversations(proxies: list[RunningProxy], tmp_path: Path) -> None:
    """The answers travel back to the workers, who are told which conversation it is."""
    sessions, turns = 12, 3
    lengths = f"--num-sessions {sessions} --session-turns-mean {turns} --session-turns-stddev 0"
    report = await profile(proxies, tmp_path, f"--endpoint-type chat {lengths}", FULL_LENGTH)
    check_report(report, sessions * turns, streamed=False)
    seen = [body for proxy in proxies for body in bodies(proxy)]
    assert Counter(len(body["messages"]) for body in seen) == {1: sessions, 3: sessions, 5: sessions}
    # Workers of the oldest version know it among the parameters.
    named = [
        body.get("conversation_params", body["disaggregated_params"])["conversation_id"] for body in seen
    ]
    assert set(Counter(named).values()) == {turns}
    for proxy in proxies:
        assert await dropped(proxy) == set()
        await check_settled(proxy)


async def test_cancellations(proxies: list[RunningProxy], tmp_path: Path) -> None:
    cancel = "--request-cancellation-rate 40 --request-cancellation-delay 0.01"
    options = f"--endpoint-type chat --streaming --request-count {REQUESTS} {cancel}"
    report = await profile(proxies, tmp_path, options, FULL_LENGTH)
    assert set(report.failed) == {"RequestCancellationError"}
    assert len(report.answered) + len(report.failed) == REQUESTS
    for answered in report.answered:
        check_answer(answered)
    for proxy in proxies:
        await check_settled(proxy)
