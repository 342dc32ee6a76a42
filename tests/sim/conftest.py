import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvloop
from sim_client import Client

from proxy.sim import SimCluster


@pytest.fixture
async def cluster() -> AsyncIterator[SimCluster]:
    async with SimCluster(1, 1) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
        yield Client(http)


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Workers run under uvloop in processes and threads of their own, and under either loop in tests."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return (
        both
        if item.path.name.startswith(("test_sim_fault", "test_sim_engine"))
        else {"uvloop": uvloop.new_event_loop}
    )
