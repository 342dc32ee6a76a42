import contextlib
import os
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
    before = _sockets()
    loop = ChaosLoop()
    yield loop
    loop.close()
    assert loop.problems == []
    assert _sockets() == before, "sockets were left open"


def _sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(entry).startswith("socket:")
    return count
