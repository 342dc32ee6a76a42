"""What one placement costs: `python -m bench.placement` prints microseconds per reserve and release.

The workers have no sockets. A fifth as many legs as workers stay in flight, so that loads differ. With `--rows` the
load table is shared by as many processes, whose rows are added up.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any, cast

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import RouterSettings
from proxy.placement.columns import LocalColumns
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import Placement
from proxy.placement.table import POLICIES, make_policy
from proxy.workers.health import Health
from proxy.workers.instance import Instance
from proxy.workers.outcome import LegOutcome
from proxy.workers.pool import WorkerPool
from proxy.workers.worker import Role, Worker

SIZES = (1, 4, 8, 16, 17, 64, 512, 4000)


def make_pool(policy: str, size: int, rows: int) -> WorkerPool:
    """A pool of workers that are ready."""
    table = LoadTable(rows=rows)
    columns = LocalColumns(table.columns)
    router = RouterSettings(cast(Any, policy))
    pool = WorkerPool(Role.CONTEXT, None, make_policy(router), table, clock=time.monotonic)

    def make_health(notify: Any) -> Health:
        return Health(
            clock=time.monotonic, eject_after=3, eject_seconds=2, slow_start_seconds=10, notify=notify
        )

    for number in range(size):
        address = parse_worker_address(f"10.0.{number // 250}.{number % 250}:8001")
        instance = Instance(address, cast(Any, None), columns.acquire(address), make_health)
        worker = Worker(ListedWorker(address, "context"), instance, pool)
        instance.workers.append(worker)
        pool.workers.append(worker)
        instance.health.probe_answered(0.001)
    return pool


def cost(
    policy: str, size: int, *, rows: int = 1, report: bool = False, mixed: bool = False, rounds: int = 7
) -> float:
    """Microseconds of one reserve and release, with or without a report; the best of some rounds."""
    pool = make_pool(policy, size, rows)
    chance = random.Random(size)
    placements = [Placement(chance.getrandbits(64), chance.getrandbits(64), 100) for _ in range(200)]
    held = [pool.reserve(placement) for placement in placements[: size // 5]]
    # The other leg's worker: listed in another role only, or one of the pool.
    elsewhere = (parse_worker_address("10.1.0.0:8001"),)
    others = [(worker.address,) if mixed and size > 1 else elsewhere for worker in pool.workers]
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        for number, placement in enumerate(placements):
            reservation = pool.reserve(placement, exclude=others[number % size])
            if report:
                reservation.report(LegOutcome.OK)
            reservation.release()
        best = min(best, time.perf_counter() - began)
    for reservation in held:
        reservation.release()
    return best / len(placements) * 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__)
    parser.add_argument("--rows", type=int, default=1, help="processes that share the load table")
    parser.add_argument("--report", action="store_true", help="report the outcome of each leg, too")
    parser.add_argument("--mixed", action="store_true", help="workers are listed in both roles")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of workers")
    arguments = parser.parse_args()
    print(f"{'workers':16}" + "".join(f"{size:>8}" for size in arguments.sizes))
    for policy in POLICIES:
        figures = [
            cost(policy, size, rows=arguments.rows, report=arguments.report, mixed=arguments.mixed)
            for size in arguments.sizes
        ]
        print(f"{policy:16}" + "".join(f"{figure:8.2f}" for figure in figures) + "  us")


if __name__ == "__main__":
    main()
