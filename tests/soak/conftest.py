import sys
from pathlib import Path

import pytest

# Their processes and clients serve here too.
for folder in ("e2e", "chaos"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from e2e_processes import Processes  # noqa: E402


@pytest.fixture
def processes(run_program, write_config):
    """Simulated workers and a proxy, each in a process of its own."""
    return Processes(run_program, write_config)
