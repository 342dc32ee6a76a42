"""Which model names may become metric labels: clients send what they like."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from proxy.telemetry.series import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from proxy.lifecycle.service import Service

_SECONDS = 1.0


class ModelNames:
    """The names that are served here.

    Args:
        source: tells them; asked when an unknown name comes, but at most once a second.
        clock: seconds, monotonic.
    """

    def __init__(self, source: Callable[[], Iterable[str]], clock: Callable[[], float] = monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: frozenset[str] = frozenset()
        self._due = 0.0

    def label(self, name: str) -> str:
        """The name itself, or `other`; empty for a request that names no model."""
        if not name or name in self._known:
            return name
        now = self._clock()
        if now >= self._due:
            self._due = now + _SECONDS
            self._known = frozenset(self._source())
            if name in self._known:
                return name
        return OTHER


def served_models(service: Service) -> Iterator[str]:
    """The models that the worker list or the workers themselves name, and the aliases."""
    yield from service.settings.proxy.model_aliases
    for worker in service.registry.workers:
        if worker.model is not None:
            yield worker.model
    for instance in service.registry.instances:
        yield from instance.models
