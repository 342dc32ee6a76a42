"""The unit file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import _parser
from proxy.config.errors import ConfigError
from proxy.config.load import load_settings

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "disagg-proxy.service"
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="systemd-analyze is missing (Debian package systemd)"
)


def values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


@needs_systemd
@pytest.mark.parametrize("changed", [False, True], ids=["as it is", "with the README's changes"])
def test_verify(tmp_path: Path, changed: bool) -> None:
    # It wants the programs to exist.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/disagg-proxy/bin/disagg-proxy", sys.executable))
    if changed:
        (block,) = re.findall(
            r"```ini\n(\[Service\]\n.*?)```", (UNIT.parent / "README.md").read_text(), re.DOTALL
        )
        (tmp_path / f"{UNIT.name}.d").mkdir()
        (tmp_path / f"{UNIT.name}.d" / "override.conf").write_text(block)
    done = subprocess.run([str(ANALYZE), "verify", str(copy)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_exposure() -> None:
    """systemd's own mark, from 0 (best) to 10; what is left is the network, which a proxy needs."""
    command = [str(ANALYZE), "security", "--offline=true", "--no-pager", "--threshold=15", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_commands_are_those_of_the_program() -> None:
    for key in ("ExecStart", "ExecStartPost"):
        (command,) = values(key)
        program, *arguments = command.split()
        assert program == "/opt/disagg-proxy/bin/disagg-proxy"
        assert _parser().parse_args(arguments).config == "/etc/disagg-proxy/disagg.yaml"
    assert values("ExecReload") == ["/bin/kill -HUP $MAINPID"]


def test_the_drain_has_its_time() -> None:
    proxy = load_settings(None, overrides={}, environ={}).proxy
    (seconds,) = values("TimeoutStopSec")
    assert int(seconds) >= proxy.drain_grace + proxy.drain_timeout + 10
    assert values("KillMode") == ["mixed"]


def test_a_wrong_configuration_is_not_tried_again() -> None:
    assert values("RestartPreventExitStatus") == [str(ConfigError.exit_code)]


def group(name: str) -> set[str]:
    """The calls of one of systemd's groups, with those of the groups in it."""
    command = [str(ANALYZE), "--no-pager", "syscall-filter", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = [line.strip() for line in done.stdout.splitlines()[1:]]
    found = {line for line in lines if line and not line.startswith(("#", "@"))}
    return found.union(*(group(line) for line in lines if line.startswith("@")))


@needs_systemd
def test_unusual_calls_of_the_proxy_are_allowed() -> None:
    allowed, refused = values("SystemCallFilter")
    calls = group(allowed) - group(refused.removeprefix("~"))
    # The limit of open files, the fleet's shared memory, its control channel.
    assert {"prlimit64", "setrlimit", "memfd_create", "mmap", "socketpair", "epoll_pwait"} <= calls
