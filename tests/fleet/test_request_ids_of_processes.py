import array
import subprocess
import sys

PROCESSES = 8
IDS = 1_000_000
MINT = """
import array, sys
from proxy.wire.ids import RequestIds

index, count = map(int, sys.argv[1:])
mint = RequestIds(3, index).mint
sys.stdout.buffer.write(array.array("q", [mint() for _ in range(count)]).tobytes())
"""


def test_a_million_ids_of_eight_processes_are_unique() -> None:
    minters = [
        subprocess.Popen(
            [sys.executable, "-c", MINT, str(index), str(IDS // PROCESSES)], stdout=subprocess.PIPE
        )
        for index in range(PROCESSES)
    ]
    ids: set[int] = set()
    for minter in minters:
        output, _ = minter.communicate(timeout=60)
        assert minter.returncode == 0
        ids.update(array.array("q", output))
    assert len(ids) == IDS
