from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from program import Program

ProgramFactory = Callable[..., Program]


@pytest.fixture
def run_program(tmp_path: Path) -> Iterator[ProgramFactory]:
    """Starts commands in processes of their own and ends them with the test."""
    programs: list[Program] = []

    def start(*arguments: str, **options: Any) -> Program:
        program = Program(*arguments, directory=tmp_path, **options)
        programs.append(program)
        return program

    yield start
    for program in reversed(programs):
        program.stop()


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., str]:
    """Writes a configuration file and returns its path."""

    def write(document: Any, name: str = "disagg.yaml") -> str:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return str(path)

    return write
