"""The batch script, with stand-ins for Slurm and TensorRT-LLM."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from loopback import network
from program import Program

from proxy.config.load import load_settings

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm" / "disagg.sbatch"
SHELLCHECK = shutil.which("shellcheck")
SECONDS = 60.0
NETWORK = network(2)
HOSTS = [f"{NETWORK}.{number}" for number in (1, 2, 3)]

STAND_INS = {
    "scontrol": """#!/bin/sh
[ "$1 $2" = "show hostnames" ] && printf '%s\\n' "$3" | tr , '\\n'
""",
    # Runs one of its tasks, on the first node, and writes down how it was called.
    "srun": """#!/bin/bash
echo "$*" >> "$LOGS/srun.txt"
while [[ $1 == --* ]]; do
    case $1 in
        --nodelist=*) first=${1#*=}; export NODE=${first%%,*} ;;
        --output=*) exec > "${1#*=}" 2>&1 ;;
    esac
    shift
done
exec "$@"
""",
    "trtllm-llmapi-launch": """#!/bin/sh
exec "$@"
""",
    "trtllm-serve": """#!/bin/bash
while [[ $# -gt 1 ]]; do
    case $1 in
        --port) port=$2 ;;
        --extra_llm_api_options) options=$2 ;;
    esac
    shift
done
roles="--context 0 --generation 1"
grep -q "^disable_overlap_scheduler: true" "$options" && roles="--context 1 --generation 0"
exec "$PYTHON" -m proxy sim --host "$NODE" --base-port "$port" $roles --name-prefix "$NODE-"
""",
}

Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path, run_program: Start) -> Start:
    folder = tmp_path / "commands"
    folder.mkdir()
    for name, text in STAND_INS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    def run(*command: str, **variables: str) -> Program:
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_NODELIST": ",".join(HOSTS),
            "MODEL": "/models/some",
            "GENERATION_WORKERS": "2",
            "CONTEXT_OPTIONS": str(SCRIPT.parents[1] / "compose" / "trtllm" / "context.yaml"),
            "GENERATION_OPTIONS": str(SCRIPT.parents[1] / "compose" / "trtllm" / "generation.yaml"),
            "PROXY_COMMAND": f"{sys.executable} -m proxy",
            "PROXY_HOST": HOSTS[0],
            "START_SECONDS": "60",
            "LOGS": str(tmp_path / "logs"),
            "DISAGG_PROXY_DRAIN_GRACE": "0",
        }
        return run_program(*command, command=(str(SCRIPT),), environment={**environment, **variables})

    return run


def test_it_serves_until_it_is_told_to_end(start: Start, tmp_path: Path) -> None:
    job = start(WORKER_SRUN="--container-image=some.sqsh")
    endpoint = job.wait_for(r"ready at (\S+)", SECONDS)[1]
    assert endpoint == f"http://{HOSTS[0]}:8000"
    body = {"model": "sim", "prompt": "one two", "max_tokens": 3}
    answer = httpx.post(f"{endpoint}/v1/completions", json=body, trust_env=False, timeout=SECONDS)
    assert answer.status_code == 200, answer.text

    settings = load_settings(
        str(tmp_path / "logs" / "disagg.yaml"), overrides={}, environ={}, container_marks=()
    )
    assert settings.warnings == ()
    assert [each.text for each in settings.context_servers.urls] == [f"{HOSTS[0]}:8001"]
    assert [each.text for each in settings.generation_servers.urls] == [f"{host}:8001" for host in HOSTS[1:]]
    calls = (tmp_path / "logs" / "srun.txt").read_text().splitlines()
    assert sorted(re.findall(r"--nodelist=(\S+)", " ".join(calls))) == HOSTS
    assert all("--nodes=1 --ntasks=8" in call and "--container-image=some.sqsh" in call for call in calls)

    job.terminate()
    assert job.wait(SECONDS) == 143
    assert "stopped" in (tmp_path / "logs" / "proxy.log").read_text()


def test_it_ends_with_its_command(start: Start, tmp_path: Path) -> None:
    job = start("sh", "-c", 'echo "asks $ENDPOINT"; exit 7')
    assert job.wait(SECONDS) == 7, job.err
    assert f"asks http://{HOSTS[0]}:8000" in job.out
    assert "stopped" in (tmp_path / "logs" / "proxy.log").read_text()


def test_it_fails_with_a_worker(start: Start, tmp_path: Path) -> None:
    job = start(GENERATION_OPTIONS="/does/not/exist", PYTHON="false")
    assert job.wait(SECONDS) == 1
    assert "a worker or the proxy has ended" in job.err


def test_workers_of_several_nodes(start: Start, tmp_path: Path) -> None:
    job = start("true", GENERATION_WORKERS="1", NODES_PER_GENERATION="2", GPUS_PER_NODE="4")
    assert job.wait(SECONDS) == 0, job.err
    calls = (tmp_path / "logs" / "srun.txt").read_text()
    assert f"--nodes=2 --ntasks=8 --ntasks-per-node=4 --nodelist={HOSTS[1]},{HOSTS[2]} " in calls


def test_too_few_nodes(start: Start) -> None:
    job = start(CONTEXT_WORKERS="2")
    assert job.wait(SECONDS) == 2
    assert "the workers need 4 nodes, and the job has 3" in job.err


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is missing (Debian package shellcheck)")
def test_shellcheck() -> None:
    done = subprocess.run([str(SHELLCHECK), str(SCRIPT)], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout


def test_the_drain_has_its_time() -> None:
    proxy = load_settings(None, overrides={}, environ={}).proxy
    before = re.search(r"^#SBATCH --signal=B:TERM@(\d+)$", SCRIPT.read_text(), re.MULTILINE)
    assert before is not None
    assert int(before[1]) >= proxy.drain_grace + proxy.drain_timeout + 10


def test_the_readme_lists_the_variables() -> None:
    own = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SECONDS", "IFS", "ENDPOINT", "YAML"}
    used = set(re.findall(r"\$\{([A-Z][A-Z_]+):[-?]", SCRIPT.read_text())) - own
    rows = [line for line in (SCRIPT.parent / "README.md").read_text().splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([A-Z][A-Z_]+)`", row.split("|")[1])}
    assert listed == used
