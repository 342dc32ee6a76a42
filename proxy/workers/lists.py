"""The worker lists of all sources, each taken as a whole, and what becomes of them together."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.config.discovery.entry import OPERATOR
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.operator import OperatorSource, Statement
from proxy.workers.reprieve import WorkerKey
from proxy.workers.worker import Role


class WorkerLists:
    """See the module's docstring.

    Args:
        sources: their names, in the order in which their labels count, whoever comes first.

    Attributes:
        operator: what operators say of single workers.
    """

    def __init__(self, sources: Iterable[str]) -> None:
        self.operator = OperatorSource()
        self._lists: dict[str, tuple[ListedWorker, ...]] = dict.fromkeys(sources, ())

    def put(self, source: str, listed: Iterable[ListedWorker]) -> None:
        """Replace the list of a source."""
        self._lists[source] = tuple(listed)

    def state(self, statement: Statement) -> None:
        """Take what an operator says of a worker."""
        self.operator.put(statement)
        self.put(OPERATOR, self.operator.listed())

    def united(self) -> dict[WorkerKey, ListedWorker]:
        """All of them. For a worker that several sources know, what one says of its labels completes what those
        before it say, and it drains if one of them says so."""
        united: dict[WorkerKey, ListedWorker] = {}
        lists = self._lists.items()
        for each in self.operator.over((source, each) for source, listed in lists for each in listed):
            key = (each.model, Role(each.role), each.address)
            known = united.get(key)
            united[key] = each if known is None else known.completed(each)
        return united
