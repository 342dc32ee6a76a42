"""Strict workers of each version behind a proxy that has been told nothing about them."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from running_proxy import RunningProxy, running_proxy

from proxy.sim import Speed

# Before litellm is imported: it would fetch a price list.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LANGSMITH_TRACING", "false")

VERSIONS = ("old", "jul", "new")
# Of a stream that takes no time nothing can be measured.
STEADY = Speed(decode_ms=5)


@asynccontextmanager
async def strict_proxy(version: str, **cluster: Any) -> AsyncIterator[RunningProxy]:
    async with running_proxy(cluster={"profile": version, **cluster}) as running:
        yield running
        for worker in running.cluster.workers:
            assert set(worker.statuses) <= {200, 404}, "a worker refused something"


@pytest.fixture(params=VERSIONS)
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    async with strict_proxy(request.param) as running:
        yield running


@pytest.fixture
def base_url(proxy: RunningProxy) -> str:
    return f"http://127.0.0.1:{proxy.port}/v1"


@pytest.fixture
async def proxies() -> AsyncIterator[list[RunningProxy]]:
    """One for each version."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(strict_proxy(version, speed=STEADY)) for version in VERSIONS]


@pytest.fixture(params=VERSIONS)
async def steady_proxy(request: pytest.FixtureRequest) -> AsyncIterator[RunningProxy]:
    async with strict_proxy(request.param, speed=STEADY) as running:
        yield running
