from typing import Any

import pytest

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.operator import OPERATOR, OperatorSource, Standing, Statement

A = parse_worker_address("a:1")


def entry(**fields: Any) -> ListedWorker:
    return ListedWorker(**{"address": A, "role": "context", **fields})


OURS, THEIRS = entry(labels={"from": "operator"}), entry(labels={"from": "configuration"})
OTHER = entry(address=parse_worker_address("b:1"))


@pytest.mark.parametrize(
    ("standing", "added", "left"),
    [
        ("listed", False, [THEIRS]),
        ("listed", True, [OURS]),
        ("draining", False, [entry(labels=THEIRS.labels, draining=True)]),
        ("draining", True, [entry(labels=OURS.labels, draining=True)]),
        ("removed", False, []),
    ],
)
def test_the_operators_word_is_over_other_sources(
    standing: Standing, added: bool, left: list[ListedWorker]
) -> None:
    source = OperatorSource()
    source.put(Statement(A, "removed"))
    source.put(Statement(A, standing, (OURS,) if added else ()))
    given = [("configuration", THEIRS), ("configuration", OTHER), *((OPERATOR, e) for e in source.listed())]
    result = list(source.over(given))
    assert [worker for worker in result if worker.address == A] == left
    assert OTHER in result


def test_nothing_was_said() -> None:
    source = OperatorSource()
    assert list(source.over([("x", THEIRS)])) == [THEIRS]
    assert source.statement(A) == Statement(A, "listed")
    assert source.listed() == []
