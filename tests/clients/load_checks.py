"""What has to be true after a load generator has run, by its own report and by what workers and proxy have seen."""

import re
from collections.abc import Mapping
from typing import Any

from load_generators import Answered, Report
from running_proxy import RunningProxy, eventually

from proxy.sim import expected_answers

_DROPPED = re.compile(r'^disagg_proxy_dropped_fields_total\{field="(.*)"\} (?!0\.0$)', re.MULTILINE)


def check_report(report: Report, requests: int, *, streamed: bool) -> None:
    """All requests were answered, with the right texts, and the program could measure them."""
    assert report.failed == []
    assert len(report.answered) == requests
    for answered in report.answered:
        check_answer(answered)
        assert (answered.first_token_ms is not None) == streamed
    if streamed:
        assert any(answered.first_token_ms < answered.latency_ms for answered in report.answered), (
            "not a stream"
        )


def check_answer(answered: Answered) -> None:
    expected = expected_answers({**answered.body, **answered.body.get("nvext", {})})[0]
    assert answered.text == expected.text
    assert answered.tokens == len(expected.token_ids)
    if answered.first_token_ms is not None:
        # A program that has been asleep reads all of an answer at once.
        assert 0 < answered.first_token_ms <= answered.latency_ms


def bodies(proxy: RunningProxy) -> list[dict[str, Any]]:
    """What the context workers got."""
    return [request.json() for worker in proxy.cluster.context_workers for request in worker.requests]


async def dropped(proxy: RunningProxy) -> set[str]:
    """The fields that the proxy has left out."""
    return set(_DROPPED.findall((await proxy.client.get("/metrics")).text))


def check_bodies(proxy: RunningProxy, requests: int, wanted: Mapping[str, Any]) -> None:
    """Each request took one leg of each kind, and the workers saw these members."""
    assert proxy.legs("context") == proxy.legs("generation") == requests
    for body in bodies(proxy):
        assert {name: body.get(name) for name in wanted} == wanted


async def check_settled(proxy: RunningProxy) -> None:
    """Nothing is left: no request, no leg, no hand-off."""
    engines = [worker.engine for worker in proxy.cluster.workers]
    await eventually(lambda: not any(engine.running for engine in engines), "the end of all legs")
    await eventually(lambda: proxy.cluster.kv.leftover == 0, "the end of all hand-offs")
    await eventually(lambda: proxy.service.admission.in_flight == 0, "the end of all requests")
    proxy.assert_settled()
