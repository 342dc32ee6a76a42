"""CPU time and memory as the operating system reports them."""

import math
import os
import subprocess
import sys
import time

from bench import accounting, instructions

TICK = 1 / os.sysconf("SC_CLK_TCK")


def test_stat_line_with_a_wicked_command_name():
    line = "7 (a) b (c) S 3 7 7 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 1 0 100 0 0"
    stat = accounting.parse_stat(line)
    assert stat.parent == 3
    assert math.isclose(stat.user, 57 * TICK)
    assert math.isclose(stat.system, 68 * TICK)
    assert math.isclose(stat.total, 125 * TICK)


def test_status_text():
    assert accounting.parse_status("Name:\tx\nVmHWM:\t  200 kB\nVmRSS:\t  150 kB\n") == (150, 200)
    assert accounting.parse_status("Name:\tzombie\n") == (0, 0)


def test_tree_counts_grandchildren():
    burn = "sum(range(30_000_000))"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 20
        while len(accounting.descendants(child.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(accounting.descendants(child.pid)) == 2
        while len(accounting.descendants(child.pid)) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        # The grandchild ended and was waited for; its time stays in the tree.
        assert sum(accounting.cpu_seconds(child.pid)) > 0.1
        resident, peak = accounting.memory_kib(child.pid)
        assert 0 < resident <= peak
        child.communicate(b"\n")


def test_a_process_that_is_gone():
    assert accounting.read_stat(2**22 + 1) is None


def test_instruction_lines_of_perf():
    assert instructions.parse("1200,,instructions,100,50.00,,\n800,,instructions:k,100,50.00,,") == 2000
    assert math.isnan(instructions.parse("<not supported>,,instructions,0,100.00,,"))
    assert math.isnan(instructions.parse(""))
