"""What a source of worker lists is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from proxy.config.listed_worker import ListedWorker


class SourceLost(Exception):
    """The source does not tell its workers at present; the text says why and is shown to operators only."""


Handler = Callable[[Any], Awaitable[Any]]
"""Carries a command out: plain JSON values in and out."""


@runtime_checkable
class Commanded(Protocol):
    """A source that others can ask for something.

    Attributes:
        commands: by name.
    """

    commands: Mapping[str, Handler]


class Source(Protocol):
    """Tells which workers there are: always the whole list, never differences, so that a lost message heals.

    Attributes:
        name: for metrics and logs; unique among the sources of a proxy.
        longest_pause: seconds; after a failure it is asked again sooner at first, at this interval in the end.
    """

    name: str
    longest_pause: float

    def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """The whole list each time it is known to be right, changed or not: the time since then is the list's age.

        Must never block the event loop. Ends when the list will not change any more. It is closed when the proxy ends,
        and called anew after an exception.

        Raises:
            SourceLost: the list is not known at present; the last one stays in force.
        """
        ...
