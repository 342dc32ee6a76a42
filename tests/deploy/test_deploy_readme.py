"""deploy/README.md: its commands run, and what it names exists."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from loopback import network

from proxy.config.settings import ProxySettings, RouterSettings, Settings
from proxy.telemetry import names

ROOT = Path(__file__).parents[2]
README = ROOT / "deploy" / "README.md"
TEXT = README.read_text()
SOURCES = "\n".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
KEYS = {field.name for struct in (Settings, ProxySettings) for field in msgspec.structs.fields(struct)}
SECONDS = 120.0


def section(heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {index - 1 for index, line in enumerate(lines) if set(line) <= set("|- ")}
    kept = [line for index, line in enumerate(lines) if index not in heads and not set(line) <= set("|- ")]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in kept]


def test_the_trial_without_gpus(tmp_path: Path) -> None:
    install, *blocks = re.findall(r"```sh\n(.*?)```", section("Install"), re.DOTALL)
    assert install == "pip install .\n"
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "disagg-proxy").write_text(f'#!/bin/sh\nexec {sys.executable} -m proxy "$@"\n')
    (commands / "disagg-proxy").chmod(0o755)
    # As written, but on an address of this test's own; the workers are ended, and waited for, by the shell.
    script = "set -eu\ntrap 'kill $(jobs -p); wait' EXIT\n" + "".join(blocks)
    script = script.replace("127.0.0.1", f"{network(4)}.1").replace(
        "sim --context", f"sim --host {network(4)}.1 --context"
    )
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DISAGG_PROXY_DRAIN_GRACE": "0",
        "no_proxy": "*",
    }
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            out, err = shell.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            raise
    assert shell.returncode == 0, out + err
    assert len(re.findall(r"^(?:context|generation) .* healthy .*$", out, re.MULTILINE)) == 4, out
    assert '"object":"text_completion"' in out
    assert "stopped" in err


def test_metrics_exist() -> None:
    ends = {"counter": ("_total",), "gauge": ("",), "histogram": ("",)}
    known = {names.PREFIX + metric.name + end for metric in names.ALL for end in ends[metric.kind]}
    named = set(re.findall(rf"{names.PREFIX}\w+", TEXT))
    assert len(named) > 15
    assert named <= known


def test_error_codes_exist() -> None:
    named = [
        code
        for cell in re.findall(r"\b[45]\d\d ((?:`\w+`(?:, )?)+)", TEXT)
        for code in re.findall(r"\w+", cell)
    ]
    assert len(named) > 12
    for code in named:
        role_free = re.sub("context|generation", "{self.role}", code)
        assert f'"{code}"' in SOURCES or f'"{role_free}"' in SOURCES, code


def test_headers_exist() -> None:
    named = set(re.findall(r"`(x-[a-z-]+)", TEXT))
    assert {"x-request-id", "x-disagg-proxy-error"} <= named
    for header in named:
        assert header in SOURCES, header


def test_keys_of_tune_exist() -> None:
    for row in rows(section("Tune")):
        for key in re.findall(r"`(\w+)`", row[1]):
            assert key in KEYS | {"domain"}, key


def test_defaults_that_are_told() -> None:
    settings = Settings()
    for told in (
        f"`drain_grace` ({settings.proxy.drain_grace:g} s)",
        f"`drain_timeout` ({settings.proxy.drain_timeout:g} s)",
    ):
        assert told in TEXT


@pytest.mark.parametrize(
    "page", ["Install", "Connect workers", "Tune", "Upgrade without loss", "Troubleshoot"]
)
def test_sections_stay_short(page: str) -> None:
    assert len(section(page).splitlines()) <= 60


def test_arguments_of_routers_are_all_in_the_table() -> None:
    text = section("Migrate from trtllm-serve disaggregated")
    for field in msgspec.structs.fields(RouterSettings):
        assert f"`router.{field.name}" in text
