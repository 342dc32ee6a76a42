import mmap
import os

import numpy as np
import pytest

from proxy.config.address import parse_worker_address
from proxy.placement.columns import Column, LocalColumns, TableFull
from proxy.placement.load_table import LoadTable


def test_a_single_process_has_one_private_row():
    table = LoadTable(columns=20)
    assert (table.rows, table.columns) == (1, 32)
    table.add(3, 1, 250)
    table.add(3, 1)
    table.add(0, 1)
    table.add(3, -1, -250)
    legs, tokens = table.totals()
    assert legs[:5].tolist() == [1, 0, 0, 1, 0]
    assert tokens.sum() == 0
    assert table.own_legs[3] == 1
    assert table.legs_of(3) == 1


def test_processes_share_a_buffer_and_readers_sum():
    memory = memoryview(bytearray(LoadTable.bytes_needed(3, 16)))
    tables = [LoadTable(rows=3, columns=16, row=row, buffer=memory) for row in range(3)]
    for row, table in enumerate(tables):
        table.add(5, row + 1, 1 << 40)
    for table in tables:
        legs, tokens = table.totals()
        assert legs[5] == 6
        assert tokens[5] == 3 << 40
        some = np.array([5, 0])
        assert table.legs_at(some, 6).tolist() == [6, 0]
        assert table.tokens_at(some, 6).tolist() == [3 << 40, 0]
        assert table.legs_of(5) == 6
    assert [table.own_legs[5] for table in tables] == [1, 2, 3]


def test_a_dead_process_is_forgotten():
    memory = memoryview(bytearray(LoadTable.bytes_needed(2, 16)))
    alive, dead = (LoadTable(rows=2, columns=16, row=row, buffer=memory) for row in range(2))
    alive.add(1, 2, 10)
    dead.add(1, 7, 70)
    alive.clear_row(1)
    assert alive.legs()[1] == 2
    assert alive.tokens()[1] == 10
    assert dead.own_legs[1] == 0


def test_a_memory_file_of_two_processes():
    size = LoadTable.bytes_needed(2, 64)
    descriptor = os.memfd_create("load")
    os.ftruncate(descriptor, size)
    with mmap.mmap(descriptor, size) as memory:
        child = os.fork()
        if child == 0:
            with mmap.mmap(descriptor, size) as other:
                LoadTable(rows=2, columns=64, row=1, buffer=other).add(9, 4, 40)
                os._exit(0)
        os.waitpid(child, 0)
        table = LoadTable(rows=2, columns=64, row=0, buffer=memory)
        assert (table.legs()[9], table.tokens()[9]) == (4, 40)
        table.clear_row(1)
        assert not table.legs().any()
        del table
    os.close(descriptor)


def test_an_own_cell_is_cleared_without_touching_others():
    memory = memoryview(bytearray(LoadTable.bytes_needed(2, 16)))
    first, second = (LoadTable(rows=2, columns=16, row=row, buffer=memory) for row in range(2))
    first.add(2, 1, 5)
    second.add(2, 1, 5)
    first.clear_column(2)
    assert (first.legs()[2], first.tokens()[2]) == (1, 5)


def test_rows_lie_on_cache_lines_of_their_own():
    assert LoadTable.bytes_needed(4, 1) == 4 * 16 * 12
    assert LoadTable(rows=2, columns=17, row=1).legs().dtype == np.int32


@pytest.mark.parametrize(("rows", "row"), [(1, 1), (2, -1)])
def test_there_is_no_such_row(rows, row):
    with pytest.raises(ValueError, match="row"):
        LoadTable(rows=rows, columns=16, row=row)


def test_a_buffer_that_is_too_small():
    with pytest.raises(ValueError, match="buffer"):
        LoadTable(columns=16, buffer=bytearray(16 * 4))


def test_columns_are_lent_by_address():
    columns = LocalColumns(2)
    a, b, c = map(parse_worker_address, ("a:1", "b:1", "c:1"))
    assert columns.acquire(a) == columns.acquire(a) == Column(0, 1)
    assert columns.acquire(b) == Column(1, 1)
    with pytest.raises(TableFull):
        columns.acquire(c)
    columns.release(a)
    columns.release(a)
    assert columns.acquire(c) == Column(0, 2)
