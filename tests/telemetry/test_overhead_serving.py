"""What `x-disagg-proxy-overhead-us` counts, with the proxy in a process of its own.

Requests with and without a change take turns, and the median of the differences counts: what else the machine does
hits both alike.
"""

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from program import Program, eventually

from proxy.sim import ThreadedSimCluster

PAIRS = 40
ROUNDS = 4
"""More pairs are asked for until their median is where it should be: only what is always there fails."""
SOME = 0.005
"""Each leg takes this long at least, so that the proxy waits in both cases: one that does not even get to sleep is
slower, since it has to share the processor with the worker."""


class Times(NamedTuple):
    """Of one request, milliseconds: the proxy's own and all, as it tells, and what the client's clock says."""

    own: float
    total: float
    client: float


class World:
    def __init__(self, cluster: ThreadedSimCluster, program: Program, mark: Path) -> None:
        self.cluster = cluster
        self.program = program
        self.mark = mark
        port = int(program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def metric(self, name: str) -> float:
        self._connection.request("GET", "/metrics")
        lines = self._connection.getresponse().read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))

    def ready(self) -> bool:
        self._connection.request("GET", "/health/ready")
        answer = self._connection.getresponse()
        answer.read()
        return answer.status == 200

    def ask(self, *, stream: bool, context: float = SOME, generation: float = SOME) -> Times:
        """One request to the head of its answer; the workers take these seconds more."""
        for role, seconds in (("context", context), ("generation", generation)):
            (worker,) = getattr(self.cluster, f"{role}_workers")
            worker.board.add({"kind": "slow_first_byte", "seconds": seconds, "count": 1})
        body = {
            "model": "sim",
            "messages": [{"role": "user", "content": "x"}],
            "max_tokens": 4,
            "stream": stream,
        }
        text = json.dumps(body)
        began = time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", text, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        took = (time.perf_counter() - began) * 1e3
        answer.read()
        assert answer.status == 200
        total = float((answer.headers["server-timing"] or "").rpartition("total;dur=")[2])
        return Times(int(answer.headers["x-disagg-proxy-overhead-us"] or "") / 1e3, total, took)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("overhead")
    with ThreadedSimCluster(context=1, generation=1, keep_alive_seconds=60.0) as cluster:
        document = {
            "hostname": "127.0.0.1",
            "port": 0,
            "context_servers": {"urls": cluster.context_urls},
            "generation_servers": {"urls": cluster.generation_urls},
            "proxy": {"drain_grace": 0},
        }
        path = directory / "disagg.yaml"
        path.write_text(json.dumps(document))
        mark = directory / "block"
        command = (sys.executable, str(Path(__file__).with_name("blocking_proxy.py")), str(mark))
        program = Program("serve", "-c", str(path), directory=directory, command=command)
        try:
            made = World(cluster, program, mark)
            eventually(made.ready, what="readiness")
            for _ in range(20):
                made.ask(stream=True)
            yield made
            made.close()
        finally:
            program.stop()


def rises(
    plain: Callable[[], Times],
    changed: Callable[[], Times],
    expected: dict[str, tuple[float, float]],
) -> tuple[list[Times], list[Times]]:
    """Ask both in turns until the medians of the differences are as expected (milliseconds, with their tolerances).

    Keys are those of `Times`, and `unseen`: what the client's clock says and the proxy does not tell.
    """
    before: list[Times] = []
    after: list[Times] = []
    wrong = {"": 0.0}
    for _ in range(ROUNDS):
        for _ in range(PAIRS):
            before.append(plain())
            after.append(changed())
        pairs = list(zip(before, after, strict=True))
        found = {
            "own": median(two.own - one.own for one, two in pairs),
            "total": median(two.total - one.total for one, two in pairs),
            "unseen": median((two.client - two.total) - (one.client - one.total) for one, two in pairs),
        }
        wrong = {
            name: found[name]
            for name, (value, tolerance) in expected.items()
            if abs(found[name] - value) >= tolerance
        }
        if not wrong:
            return before, after
    raise AssertionError(f"{wrong} ms after {len(before)} pairs, expected {expected}")


@pytest.mark.parametrize("leg", ["context", "generation"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_slower_worker_is_not_the_proxys_time(world: World, stream: bool, leg: str) -> None:
    before, after = rises(
        lambda: world.ask(stream=stream),
        lambda: world.ask(stream=stream, **{leg: SOME + 0.05}),
        {"own": (0.0, 0.2), "total": (50.0, 2.0), "unseen": (0.0, 0.2)},
    )
    for times in (*before, *after):
        assert 0 < times.own < times.total < times.client
    # The head of the answer is on its way, and read by a client in Python.
    assert median(times.client - times.total for times in (*before, *after)) < 5.0


@pytest.mark.parametrize("stream", [False, True])
def test_blocking_is_the_proxys_time(world: World, stream: bool) -> None:
    counted = world.metric("disagg_proxy_overhead_seconds_sum")

    slept: list[float] = []

    def blocked() -> Times:
        """Without the time for which it was blocked, which may have been a little longer than ordered."""
        world.mark.touch()
        try:
            times = world.ask(stream=stream)
            each = [float(line) for line in world.mark.read_text().splitlines()]
        finally:
            world.mark.unlink()
        assert len(each) == 2
        slept.append(sum(each))
        assert times.own > sum(each) * 1e3 >= 20
        return Times(*(value - sum(each) * 1e3 for value in times))

    rises(
        lambda: world.ask(stream=stream),
        blocked,
        {"own": (0.0, 0.5), "total": (0.0, 1.0), "unseen": (0.0, 0.2)},
    )
    assert world.metric("disagg_proxy_overhead_seconds_sum") - counted > sum(slept)
