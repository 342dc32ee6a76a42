import asyncio
from typing import Any

import pytest
import uvloop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """What touches sockets is tested on both loops, what runs on scripted transports on the one we serve with."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if "sockets" in item.path.name else {"uvloop": uvloop.new_event_loop}
