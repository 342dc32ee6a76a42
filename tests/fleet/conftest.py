from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_stack import FleetStack
from program import Program


@pytest.fixture
def start_fleet(run_program: Callable[..., Program], tmp_path: Path) -> Iterator[Callable[..., FleetStack]]:
    """Starts fleets and ends them, with their workers, at the end of the test."""
    stacks: list[FleetStack] = []

    def start(processes: int, **options: Any) -> FleetStack:
        stack = FleetStack(run_program, tmp_path / f"fleet-{len(stacks)}.yaml", processes, **options)
        stacks.append(stack)
        return stack

    yield start
    for stack in stacks:
        stack.stop()
