import json
from typing import Any

import pytest
from recorded_requests import REQUESTS
from running_proxy import RunningProxy


@pytest.mark.parametrize("name", REQUESTS)
async def test_no_worker_refuses_it(proxy: RunningProxy, name: str) -> None:
    body = REQUESTS[name]
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    response = await proxy.client.post(path, json=body)
    assert response.status_code == 200, response.text
    if body.get("stream"):
        assert response.text.rstrip().endswith("data: [DONE]")
        assert all("error" not in event for event in events(response.text))
    else:
        assert response.json()["choices"]
    # The first token may be the last one: then there is no second leg.
    assert 1 == proxy.legs("context") >= proxy.legs("generation"), "nothing was tried twice"


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def test_a_bundle_of_token_ids_does_not_travel(proxy: RunningProxy) -> None:
    await proxy.client.post("/v1/chat/completions", json=REQUESTS["nemo-gym"])
    for worker in proxy.cluster.workers:
        (request,) = worker.requests
        assert b"generation_log_probs" not in (request.body or b"")
        assert b"routed_experts" not in (request.body or b"")
