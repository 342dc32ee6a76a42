import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config.address import parse_worker_address
from proxy.fleet.columns import ColumnBook, FleetColumns, Grant
from proxy.placement.columns import Column, TableFull


def test_all_processes_get_the_same_column() -> None:
    book = ColumnBook(10)
    first, second = book.grant(0, "a:1"), book.grant(1, "a:1")
    assert (first.number, first.generation) == (second.number, second.generation) == (0, 1)
    assert book.grant(0, "b:1").number == 1


def test_a_column_is_free_when_every_process_has_released_it() -> None:
    book = ColumnBook(10)
    grants = [book.grant(process, "a:1") for process in range(3)]
    book.release(0, "a:1", grants[0].serial)
    book.release(2, "a:1", grants[2].serial)
    assert book.grant(0, "b:1").number == 1
    book.release(1, "a:1", grants[1].serial)
    reused = book.grant(0, "c:1")
    assert (reused.number, reused.generation) == (0, 2)


def test_a_process_that_ends_releases_everything() -> None:
    book = ColumnBook(10)
    book.grant(0, "a:1")
    book.grant(1, "a:1")
    book.grant(1, "b:1")
    book.forget(1)
    assert book.grant(0, "c:1").number == 1
    assert book.grant(1, "a:1").number == 0


def test_a_worker_that_comes_back_keeps_its_column() -> None:
    book = ColumnBook(10)
    first = book.grant(0, "a:1")
    book.grant(1, "a:1")
    book.release(0, "a:1", first.serial)
    again = book.grant(0, "a:1")
    assert (again.number, again.generation) == (first.number, first.generation)


def test_a_release_that_crossed_with_a_new_grant_is_void() -> None:
    book = ColumnBook(10)
    first = book.grant(0, "a:1")
    again = book.grant(0, "a:1")  # on its way while the process releases the first
    book.release(0, "a:1", first.serial)
    assert book.grant(1, "b:1").number == 1
    book.release(0, "a:1", again.serial)
    assert book.grant(1, "c:1").number == 0


def test_releases_of_what_nobody_holds_do_nothing() -> None:
    book = ColumnBook(10)
    grant = book.grant(0, "a:1")
    book.release(1, "a:1", grant.serial)
    book.release(0, "b:1", grant.serial)
    book.release(0, "a:1", grant.serial)
    book.release(0, "a:1", grant.serial)
    book.forget(5)
    assert [book.grant(0, name).number for name in "xy"] == [0, 1]


def test_a_full_table() -> None:
    book = ColumnBook(2)
    first = book.grant(0, "a:1")
    book.grant(0, "b:1")
    with pytest.raises(TableFull, match="more than 2 workers"):
        book.grant(0, "c:1")
    assert book.grant(1, "a:1").number == 0
    book.release(0, "a:1", first.serial)
    with pytest.raises(TableFull):
        book.grant(0, "c:1")
    book.forget(1)
    assert book.grant(0, "c:1").number == 0


Step = tuple[str, int, int]


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(["grant", "release", "forget"]), st.integers(0, 2), st.integers(0, 4)))
)
def test_two_addresses_never_share_a_column(steps: list[Step]) -> None:
    book = ColumnBook(5)
    held: dict[tuple[int, str], Grant] = {}
    owners: dict[int, tuple[str, int]] = {}
    for action, process, number in steps:
        address = f"worker-{number}:1"
        if action == "grant":
            held[process, address] = book.grant(process, address)
        elif action == "release" and (process, address) in held:
            book.release(process, address, held.pop((process, address)).serial)
        elif action == "forget":
            book.forget(process)
            held = {key: grant for key, grant in held.items() if key[0] != process}
        owners.clear()
        for (_, holder), grant in held.items():
            assert owners.setdefault(grant.number, (holder, grant.generation)) == (holder, grant.generation)


def test_a_process_hands_out_what_was_granted() -> None:
    released: list[tuple[str, int]] = []
    here, there = parse_worker_address("a:1"), parse_worker_address("b:1")
    columns = FleetColumns(
        {"a:1": Grant(3, 7, 50)}, lambda address, serial: released.append((address, serial))
    )
    assert columns.acquire(here) == columns.acquire(here) == Column(3, 7)
    assert columns.missing([here, there]) == ["b:1"]
    with pytest.raises(TableFull, match="no column was granted for b:1"):
        columns.acquire(there)
    columns.granted({"b:1": Grant(4, 1, 60), "a:1": Grant(3, 7, 61)})
    assert columns.acquire(there) == Column(4, 1)
    columns.release(here)
    columns.release(here)
    assert released == [("a:1", 61)]
    assert columns.missing([here, there]) == ["a:1"]
