import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Bodies and answers of the end-to-end tests serve here too.
sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))

from chaos_loop import ChaosLoop


@pytest.fixture(scope="module")
def chaos() -> Iterator[ChaosLoop]:
    """An event loop for clients, proxies and workers, which must have nothing to complain about at its end."""
    loop = ChaosLoop()
    yield loop
    loop.close()
    assert loop.problems == []
