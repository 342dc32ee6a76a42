"""What operators say of single workers while the proxy runs: the newest word about an address counts, over all other
sources, until it is taken back or the proxy ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from proxy.config.address import WorkerAddress
from proxy.config.discovery.entry import OPERATOR
from proxy.config.listed_worker import ListedWorker

Standing = Literal["listed", "draining", "removed"]


class Statement(msgspec.Struct, frozen=True):
    """The newest word about one address.

    Attributes:
        address: of the worker, in all its roles.
        standing: `removed` ones are not listed, whatever other sources say.
        listed: the entries of a worker that an operator has added; they replace those of other sources.
    """

    address: WorkerAddress
    standing: Standing
    listed: tuple[ListedWorker, ...] = ()


class OperatorSource:
    """See the module's docstring. `Registry.state` feeds it."""

    def __init__(self) -> None:
        self._statements: dict[WorkerAddress, Statement] = {}

    def put(self, statement: Statement) -> None:
        """Take the newest word about an address."""
        self._statements[statement.address] = statement

    def statement(self, address: WorkerAddress) -> Statement:
        """The newest word about an address; that it is listed, where nothing was said."""
        return self._statements.get(address) or Statement(address, "listed")

    @property
    def draining(self) -> frozenset[WorkerAddress]:
        """The workers that drain because an operator says so."""
        statements = self._statements.values()
        return frozenset(each.address for each in statements if each.standing == "draining")

    @property
    def removed(self) -> list[WorkerAddress]:
        """The workers that are not listed, whatever other sources say."""
        return [each.address for each in self._statements.values() if each.standing == "removed"]

    def listed(self) -> Sequence[ListedWorker]:
        """All workers that operators have added."""
        return [worker for statement in self._statements.values() for worker in statement.listed]

    def over(self, listed: Iterable[tuple[str, ListedWorker]]) -> Iterator[ListedWorker]:
        """The entries of all sources, by their names, as operators want them."""
        for source, worker in listed:
            statement = self._statements.get(worker.address)
            if statement is None:
                yield worker
            elif statement.standing == "removed" or (statement.listed and source != OPERATOR):
                continue
            elif statement.standing == "draining":
                yield replace(worker, draining=True)
            else:
                yield worker
