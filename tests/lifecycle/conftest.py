from collections.abc import Iterator
from typing import Any

import pytest
import uvloop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """The loop we serve with."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def nothing_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception is left to the event loop."""
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
