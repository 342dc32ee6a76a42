"""What the Dockerfile installs, installed: its lines are run below a folder, and the entry point as in a container."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from container import contained, first_process, why_no_containers
from free_port import free_port
from image_file import DOCKERFILE, Build, health_check, pairs, stages, value
from program import Program, eventually

from proxy.sim import ThreadedSimCluster

# Wheels of some dozen packages come from the package index.
pytestmark = pytest.mark.long

NO_CONTAINERS = why_no_containers()
needs_containers = pytest.mark.skipif(NO_CONTAINERS is not None, reason=str(NO_CONTAINERS))
SECONDS = 60.0


class Image:
    """The files of the image below a folder, and how it runs."""

    def __init__(self, root: Path) -> None:
        self.build = Build(root)
        _, build_stage, self.final = stages()
        self.build.run(build_stage)
        self.configuration = Path(self.build.below("/etc/disagg-proxy/disagg.yaml"))
        self.build.copy(f"deploy/docker/disagg.yaml {self.configuration}")
        self.user = value(self.final, "USER")

    def environment(self) -> dict[str, str]:
        found = pairs(self.final, "ENV")
        found["PATH"] = self.build.below(found["PATH"]).replace("$PATH", "/usr/bin:/bin")
        return {**found, "PYTHONPATH": "", "HOME": "/nonexistent", "TMPDIR": "/nonexistent"}

    def command(self, *more: str) -> tuple[str, ...]:
        """ENTRYPOINT and CMD, with what stands behind the image's name on a command line."""
        words = [*json.loads(value(self.final, "ENTRYPOINT")), *json.loads(value(self.final, "CMD")), *more]
        prefix = contained(self.user) if NO_CONTAINERS is None else ()
        return (*prefix, *map(self.build.below, words))

    def health(self) -> int:
        _, command = health_check(self.final)
        done = subprocess.run(
            list(map(self.build.below, command)), env={**os.environ, **self.environment()}, timeout=SECONDS
        )
        return done.returncode


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # Not below pytest's folder, which other users may not enter.
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        Path(folder).chmod(0o755)
        yield Image(Path(folder))


@pytest.fixture
def start(image: Image, run_program: Callable[..., Program]) -> Iterator[Callable[..., tuple[Program, int]]]:
    """Starts the image with workers; returns its process and its port."""
    with ThreadedSimCluster(context=1, generation=1) as cluster:

        def run(*more: str) -> tuple[Program, int]:
            port = free_port()
            document = {
                **yaml.safe_load(image.configuration.read_text()),
                "port": port,
                "context_servers": {"urls": cluster.context_urls},
                "generation_servers": {"urls": cluster.generation_urls},
                "proxy": {"drain_grace": 0},
            }
            image.configuration.write_text(yaml.safe_dump(document))
            program = run_program(command=image.command(*more), environment=image.environment())
            url = f"http://127.0.0.1:{port}"

            def ready() -> bool:
                assert program.process.poll() is None, program.err
                try:
                    return httpx.get(f"{url}/health", trust_env=False).status_code == 200
                except httpx.TransportError:
                    return False

            eventually(ready, SECONDS, "readiness")
            return program, port

        yield run


def main_process(program: Program) -> int:
    return first_process(program.pid) if NO_CONTAINERS is None else program.pid


def complete(port: int) -> int:
    answer = httpx.post(
        f"http://127.0.0.1:{port}/v1/completions",
        json={"model": "sim", "prompt": "one two", "max_tokens": 3},
        trust_env=False,
        timeout=SECONDS,
    )
    return answer.status_code


def test_the_lock_holds_all_that_the_packages_need(image):
    """They are installed without looking at their dependencies."""
    python = image.build.below("/opt/disagg-proxy/bin/python")
    command = [sys.executable, "-m", "pip", "--python", python, "check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout


def test_it_serves_tells_its_health_and_drains(image, start):
    program, port = start()
    assert complete(port) == 200
    assert image.health() == 0
    os.kill(main_process(program), signal.SIGTERM)
    assert program.wait(SECONDS) == 0, program.err
    assert image.health() == 1


def test_a_fleet_as_process_1(start):
    program, port = start("--workers", "2")
    main = main_process(program)
    first = {int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()}
    assert len(first) == 2
    victim = first.pop()
    os.kill(victim, signal.SIGKILL)
    # No zombie stays, and another takes its place.
    eventually(lambda: not Path(f"/proc/{victim}").exists(), SECONDS, "the end of the process")
    children = Path(f"/proc/{main}/task/{main}/children")
    eventually(lambda: len(children.read_text().split()) == 2, SECONDS, "its successor")
    # A process that has just started may not know its workers yet.
    eventually(lambda: complete(port) == 200, SECONDS, "an answer")
    os.kill(main, signal.SIGTERM)
    assert program.wait(SECONDS) == 0, program.err


@needs_containers
def test_the_container_of_these_tests_is_one(image):
    """Else the other tests would show less than they say."""
    target = image.build.root / "written"
    script = f'echo $$; id -u; grep CapEff /proc/self/status; touch "{target}" 2>/dev/null || echo read-only'
    done = subprocess.run(
        [*contained(image.user), "sh", "-c", script], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stdout.split() == ["1", image.user.split(":")[0], "CapEff:", "0000000000000004", "read-only"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("lock", ["requirements.lock", "build.lock"])
def test_there_are_wheels_for_both_architectures(tmp_path, machine, lock):
    # Those that the C library of the base image takes.
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, 37)] + [f"manylinux2014_{machine}"]
    # fmt: off
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
         "--require-hashes", "--dest", str(tmp_path), "-r", str(DOCKERFILE.parent / lock),
         *(word for platform in platforms for word in ("--platform", platform))],
        capture_output=True, text=True, timeout=600,
    )
    # fmt: on
    assert done.returncode == 0, done.stderr
    assert any(tmp_path.glob("*.whl"))
