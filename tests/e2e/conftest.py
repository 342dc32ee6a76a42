from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2e_server import Kind
from e2e_stack import Stack, Stacks

MakeStack = Callable[..., Stack]


@pytest.fixture(scope="module")
def stacks() -> Iterator[Stacks]:
    running = Stacks()
    yield running
    running.close()


@pytest.fixture(params=["own", "uvicorn"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each test runs under our own server and as a plain ASGI application under uvicorn."""
    return request.param


@pytest.fixture
def make_stack(stacks: Stacks, kind: Kind) -> Iterator[MakeStack]:
    """A stack with options of the simulated workers (``cluster``) and of the configuration (the rest)."""
    used: list[Stack] = []

    def make(cluster: dict[str, Any] | None = None, **overrides: Any) -> Stack:
        stack = stacks.get(kind, cluster or {}, overrides)
        stack.begin()
        used.append(stack)
        return stack

    yield make
    for stack in used:
        stack.check_settled()


@pytest.fixture
def stack(make_stack: MakeStack) -> Stack:
    return make_stack()
