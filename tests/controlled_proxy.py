"""A proxy with control routes, in the test's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from running_proxy import RunningProxy, running_proxy

CONTROL: dict[str, Any] = {"rl_control": True, "admin_listen": "127.0.0.1:0"}


@asynccontextmanager
async def controlled(**options: Any) -> AsyncIterator[tuple[RunningProxy, httpx.AsyncClient]]:
    """A running proxy and a client of its admin listener."""
    async with (
        running_proxy(**{**CONTROL, **options}) as proxy,
        httpx.AsyncClient(base_url=proxy.admin_url, timeout=20, trust_env=False) as admin,
    ):
        yield proxy, admin
