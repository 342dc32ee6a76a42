"""Workers that die, hang, lie about their health, or come back as somebody else, under load."""

import asyncio
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from chaos_client import ClientAnswer, ask
from e2e_bodies import CHAT, chat, events
from e2e_processes import Processes
from free_port import free_port
from program import Program, eventually

STREAMS = 64
RETURN_SECONDS = 3.0
PROXY = {
    "probe_interval": 0.2, "probe_timeout": 0.5, "eject_after": 3, "eject_seconds": 0.5, "slow_start_seconds": 0,
    "timeout_first_byte": 3, "timeout_context": 3, "timeout_idle": 3,
}  # fmt: skip
SPEED = ("--decode-ms", "20", "--record", "0")


class Workers:
    """One process of two context workers, and a process for each of four generation workers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ports = [free_port()]
        while len(self.ports) < 4:
            self.ports.append(free_port())
        context = self._run("--context", "2", "--generation", "0", "--base-port", "0")
        self.programs = [self._start(number) for number in range(4)]
        self._all = [context, *self.programs]
        self.context = re.findall(r"ready at (\S+)", self._ready(context, 2).out)
        self.whole()

    def _run(self, *options: str) -> Program:
        return Program("sim", *options, *SPEED, directory=self._directory)

    def _start(self, number: int, *options: str) -> Program:
        arguments = ("--context", "0", "--generation", "1", "--base-port", str(self.ports[number]))
        return self._run(*arguments, "--name-prefix", f"{number}-", *options)

    @staticmethod
    def _ready(program: Program, count: int = 1) -> Program:
        eventually(lambda: program.out.count("ready at") == count, what="the workers")
        return program

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    def kill(self, number: int) -> None:
        self.programs[number].process.kill()
        self.programs[number].wait()

    def revive(self, *numbers: int, options: tuple[str, ...] = ()) -> None:
        """Start generation workers again and wait until they listen."""
        for number in numbers:
            self.programs[number] = self._start(number, *options)
            self._all.append(self.programs[number])
        for number in numbers:
            self._ready(self.programs[number])

    def whole(self) -> None:
        """All of them run and have no faults."""
        self.revive(*(number for number in range(4) if self.programs[number].process.poll() is not None))
        for number in range(4):
            self._ready(self.programs[number])
            asyncio.run(self.control(number, "DELETE"))

    async def control(self, number: int, method: str, fault: str = "") -> None:
        """Switch a generation worker's faults."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[number])
        lines = (
            f"{method} /sim/faults HTTP/1.1",
            "host: x",
            "connection: close",
            f"content-length: {len(fault)}",
        )
        writer.write("\r\n".join([*lines, "", fault]).encode())
        assert b" 200 " in await reader.read()
        writer.close()
        await writer.wait_closed()

    def stop(self) -> None:
        for program in self._all:
            program.stop()


class Fleet:
    """A proxy of its own for a test, in front of the workers that all tests share."""

    def __init__(self, workers: Workers, processes: Processes) -> None:
        self.workers = workers
        addresses = [workers.address(number) for number in range(4)]
        processes.workers = [("context", address) for address in workers.context]
        processes.workers += [("generation", address) for address in addresses]
        self.proxy = processes.serve(processes.config(PROXY))
        eventually(lambda: self.proxy.metric("worker_ready") == 6, what="all workers")

    def placed(self, number: int) -> float:
        """Legs that this generation worker has got so far."""
        return self.proxy.metric("placements_total", worker=self.workers.address(number))

    def served_by(self, request_id: str) -> str:
        """Address of the generation worker, from the access log."""
        line = self.proxy.program.wait_for(f".*request_id={request_id} .*")[0]
        return next((word[4:] for word in line.split() if word.startswith("gen=")), "")


class Clients:
    """Clients that ask one after the other; keeps each answer with its time of departure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: list[asyncio.Task[None]] = []
        self.answers: list[tuple[float, ClientAnswer, bool]] = []
        self.stopping = False

    async def _ask(self, number: int) -> None:
        while not self.stopping:
            body = chat(stream=number % 4 != 0, max_tokens=30, ignore_eos=True)
            began = time.monotonic()
            answer = await ask(self._port, CHAT, body)
            self.answers.append((began, answer, body["stream"]))

    async def __aenter__(self) -> "Clients":
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(STREAMS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping = True
        await asyncio.gather(*self._tasks)

    def failures(self, since: float = 0.0) -> list[tuple[float, ClientAnswer, bool]]:
        """Answers to requests that were sent since then and are not what was asked for."""
        return [each for each in self.answers if each[0] >= since and not _is_good(each[1], stream=each[2])]


def _is_good(answer: ClientAnswer, *, stream: bool) -> bool:
    if answer.status != 200 or not answer.complete:
        return False
    return answer.text.endswith("[DONE]\n\n") if stream else "choices" in answer.json()


async def eventually_placed(fleet: Fleet, number: int, seconds: float) -> None:
    """The worker gets legs again within the time."""
    before = fleet.placed(number)
    deadline = time.monotonic() + seconds
    while await asyncio.to_thread(fleet.placed, number) <= before:
        assert time.monotonic() < deadline, f"no traffic {seconds} s after its return"
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    running = Workers(tmp_path_factory.mktemp("workers"))
    yield running
    running.stop()


@pytest.fixture
def fleet(workers, run_program, write_config):
    workers.whole()
    return Fleet(workers, Processes(run_program, write_config))


def shown(failures):
    return Counter(
        (answer.status, answer.headers.get("x-disagg-proxy-error", answer.text[-300:]), stream)
        for _, answer, stream in failures
    )


def test_kill(fleet):
    """Only what was streaming from the dead worker fails, each with an error event; nothing that comes after."""

    async def scenario():
        async with Clients(fleet.proxy.port) as clients:
            await asyncio.sleep(1.0)
            assert clients.failures() == []
            fleet.workers.kill(1)
            killed = time.monotonic()
            await asyncio.sleep(1.5)
            fleet.workers.revive(1)
            await eventually_placed(fleet, 1, RETURN_SECONDS)
            await asyncio.sleep(0.5)
        return clients, killed

    clients, killed = asyncio.run(scenario())
    failures = clients.failures()
    assert failures
    assert len(failures) <= STREAMS / 4 + 8
    assert clients.failures(since=killed) == [], shown(clients.failures(since=killed))
    for _, answer, stream in failures:
        assert answer.complete
        if answer.status == 200:
            assert stream
            assert fleet.served_by(answer.headers["x-request-id"]) == fleet.workers.address(1)
            assert events(answer.text)[-1]["error"]["code"] == "worker_disconnected"
        else:
            # It had not begun, and more died at once than the retry budget allows to do again.
            code = answer.headers.get("x-disagg-proxy-error")
            assert code in {"gen;worker_disconnected", "gen;worker_unreachable"}, (
                f"{answer.status} {answer.text}"
            )


def test_a_worker_that_hangs(fleet):
    """It accepts connections and never answers: requests that it had fail at their deadlines, later ones avoid it."""

    async def scenario():
        async with Clients(fleet.proxy.port) as clients:
            await asyncio.sleep(0.5)
            os.kill(fleet.workers.programs[2].pid, signal.SIGSTOP)
            stopped = time.monotonic()
            await asyncio.sleep(5.5)
            os.kill(fleet.workers.programs[2].pid, signal.SIGCONT)
            await eventually_placed(fleet, 2, RETURN_SECONDS + 2)
            await asyncio.sleep(0.5)
        return clients, stopped

    clients, stopped = asyncio.run(scenario())
    # Its legs find it out when their 3 s are over: it has answered a moment ago, and silent probes alone do not count.
    late = clients.failures(since=stopped + 3.8)
    assert late == [], shown(late)
    for _, answer, stream in clients.failures():
        assert fleet.served_by(answer.headers["x-request-id"]) == fleet.workers.address(2)
        if answer.status == 200:
            assert stream
            assert events(answer.text)[-1]["error"]["code"] == "idle_timeout"
        else:
            assert answer.headers["x-disagg-proxy-error"] == "gen;first_byte_timeout"


@pytest.mark.parametrize("status", [400, 500])
def test_a_worker_that_lies_about_its_health(fleet, status):
    """Its health says 200 while each request fails."""

    async def scenario():
        async with Clients(fleet.proxy.port) as clients:
            await asyncio.sleep(0.5)
            faults = f'{{"kind": "status", "status": {status}}}'
            await fleet.workers.control(3, "POST", faults)
            lied = time.monotonic()
            await asyncio.sleep(3.0)
            before = fleet.placed(3)
            await asyncio.sleep(1.0)
            assert fleet.placed(3) - before <= 3, "more than trial legs"
            await fleet.workers.control(3, "DELETE")
            # Trials come after 0.5, 1, 2 and 4 s.
            await eventually_placed(fleet, 3, 6.0)
            await asyncio.sleep(0.5)
        return clients, lied

    clients, lied = asyncio.run(scenario())
    failures = clients.failures()
    for _, answer, _ in failures:
        assert answer.status == status
    if status == 500:
        # Each is done once more elsewhere, as far as the retry budget goes.
        assert len(failures) <= STREAMS / 4
    else:
        assert len(failures) <= 60
    # Trial legs may still meet it.
    assert len(clients.failures(since=lied + 2.5)) <= 4


def test_another_version_behind_the_same_address(fleet):
    """A worker is replaced by one of another version: no request fails once it is there."""

    async def scenario():
        async with Clients(fleet.proxy.port) as clients:
            await asyncio.sleep(0.5)
            fleet.workers.kill(0)
            killed = time.monotonic()
            fleet.workers.revive(0, options=("--profile", "new"))
            await eventually_placed(fleet, 0, RETURN_SECONDS)
            await asyncio.sleep(1.0)
        return clients, killed

    clients, killed = asyncio.run(scenario())
    fleet.workers.kill(0)
    assert clients.failures(since=killed) == [], shown(clients.failures(since=killed))


def test_all_of_a_role(fleet):
    """Nobody left: refused at once, and served again within three seconds of their return.

    The probes know that nobody answers; `fail_open` tries all the same, and a client hears what came of it.
    """

    async def scenario():
        for number in range(4):
            fleet.workers.kill(number)
        gone = time.monotonic()
        answers = []
        while time.monotonic() < gone + 2.0:
            answers.append((time.monotonic(), await ask(fleet.proxy.port, CHAT, chat(stream=True))))
            await asyncio.sleep(0.05)
        for _, answer in answers:
            assert answer.status in (502, 503)
            assert answer.seconds < 1.0
            assert answer.status == 502 or "retry-after" in answer.headers
        assert (await asyncio.to_thread(fleet.proxy.get, "/health/ready")).status_code == 503
        fleet.workers.revive(0, 1, 2, 3)
        back = time.monotonic()
        while True:
            answer = await ask(fleet.proxy.port, CHAT, chat(stream=True))
            if answer.status == 200:
                break
            assert time.monotonic() < back + RETURN_SECONDS, answer
            await asyncio.sleep(0.05)
        for _ in range(50):
            answer = await ask(fleet.proxy.port, CHAT, chat(stream=True))
            assert answer.status == 200
            assert answer.text.endswith("[DONE]\n\n")

    asyncio.run(scenario())
