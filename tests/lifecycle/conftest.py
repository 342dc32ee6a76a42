from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvloop
from scripted_workers import World


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """The loop we serve with."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def nothing_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception is left to the event loop."""
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(*arguments: Any, **options: Any) -> World:
        worlds.append(World(*arguments, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.close()
