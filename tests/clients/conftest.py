"""Strict workers of each version behind a proxy that has been told nothing about them."""

import os
from collections.abc import AsyncIterator

import pytest
from running_proxy import RunningProxy, running_proxy

# Before litellm is imported: it would fetch a price list.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LANGSMITH_TRACING", "false")


@pytest.fixture(params=["old", "jul", "new"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    async with running_proxy(cluster={"profile": request.param}) as running:
        yield running
        for worker in running.cluster.workers:
            assert set(worker.statuses) <= {200, 404}, "a worker refused something"


@pytest.fixture
def base_url(proxy: RunningProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}/v1"
