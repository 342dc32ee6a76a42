"""Who is measured, and how each is started on one core.

A contestant builds its command for given ports. What is not installed raises MissingError and is reported as missing.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.cases import Case
from bench.child import ROOT, free_port
from bench.rivals import haproxy, nginx


class MissingError(Exception):
    """The contestant cannot run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Of the proxy under test and of the two workers."""

    proxy: int
    context: int
    generation: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A command and what it needs beside its arguments."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path = ROOT


def every_case(_: Case) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Contestant:
    """name: for the command line; title: for tables; dialect: which protocol the workers speak to it;
    arrays: ids travel as JSON arrays; body: what the client sends; build: (ports, folder for files) -> Launch.
    """

    name: str
    title: str
    build: Callable[[Ports, Path], Launch]
    dialect: str = "trtllm"
    arrays: bool = False
    body: str = "client"
    suits: Callable[[Case], bool] = every_case


def _python(folder: str) -> str:
    """The interpreter of a virtual environment in the repository, else the running one."""
    path = ROOT / folder / "bin" / "python"
    return str(path) if path.exists() else sys.executable


def _binary(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=f"/usr/sbin:{ROOT / '.venv-bench' / 'bin'}")
    if found is None:
        raise MissingError(f"{name} is not installed")
    return found


def ours(
    base64: bool, source: Path = ROOT, extra: str = "access_log: false", client: str = ""
) -> Callable[[Ports, Path], Launch]:
    """This project's proxy, from the working tree or another checkout at `source`.

    `extra`: keys of the `proxy:` mapping; `{folder}` is one for files. Everything else has its default, so field
    policy, placement, health probes and metrics are on. `client`: a library in the place of its worker client.
    """

    def build(ports: Ports, folder: Path) -> Launch:
        if not (source / "proxy" / "cli.py").exists():
            raise MissingError("this checkout has no proxy/cli.py")
        config = folder / "ours.yaml"
        config.write_text(
            f"hostname: 127.0.0.1\nport: {ports.proxy}\n"
            f"gen_tokids_ctxbytes: {'true' if base64 else 'false'}\n"
            f'context_servers: {{num_instances: 1, urls: ["127.0.0.1:{ports.context}"]}}\n'
            f'generation_servers: {{num_instances: 1, urls: ["127.0.0.1:{ports.generation}"]}}\n'
            f"proxy: {{{extra.replace('{folder}', str(folder))}}}\n"
        )
        module, python = ("bench.rivals.over_library", ".venv-bench") if client else ("proxy", ".venv")
        if client and not _has(_python(python), client):
            raise MissingError(f"{client} is not installed")
        return Launch(
            [_python(python), "-m", module, "serve", "-c", str(config)],
            # In front of the installed one, so that another checkout's package is the one that runs.
            {"PYTHONPATH": str(source), "BENCH_CLIENT": client},
            source,
        )

    return build


def _application(module: str, needs: str, **options: str) -> Callable[[Ports, Path], Launch]:
    """A rival written in Python in bench/rivals, configured by its environment."""

    def build(ports: Ports, folder: Path) -> Launch:
        python = _python(".venv-bench")
        if not _has(python, needs):
            raise MissingError(f"{needs} is not installed")
        metrics = folder / "metrics"
        metrics.mkdir(exist_ok=True)
        environment = {
            "BENCH_PORT": str(ports.proxy),
            "BENCH_CONTEXT": f"127.0.0.1:{ports.context}",
            "BENCH_GENERATION": f"127.0.0.1:{ports.generation}",
            "PROMETHEUS_MULTIPROC_DIR": str(metrics),
            **options,
        }
        return Launch([python, "-m", module], environment)

    return build


def _has(python: str, module: str) -> bool:
    probe = [python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"]
    return subprocess.run(probe, check=False).returncode == 0


def _nginx(ports: Ports, folder: Path) -> Launch:
    binary = _binary("nginx")
    config = folder / "nginx.conf"
    config.write_text(nginx.configuration(ports.proxy, ports.generation, folder))
    return Launch([binary, "-c", str(config), "-e", str(folder / "nginx.log"), "-p", str(folder)])


def _haproxy(ports: Ports, folder: Path) -> Launch:
    binary = _binary("haproxy")
    config = folder / "haproxy.cfg"
    config.write_text(haproxy.configuration(ports.proxy, ports.generation))
    return Launch([binary, "-db", "-f", str(config)])


def _gateway(name: str, *options: str) -> Callable[[Ports, Path], Launch]:
    """A Rust gateway in its prefill/decode mode; retries and health probes do not disturb the run."""

    def build(ports: Ports, _: Path) -> Launch:
        command = [_binary(name), *options]
        command += ["--host", "127.0.0.1", "--port", str(ports.proxy)]
        command += [
            "--prefill",
            f"http://127.0.0.1:{ports.context}",
            "--decode",
            f"http://127.0.0.1:{ports.generation}",
        ]
        command += ["--policy", "round_robin", "--log-level", "error", "--disable-retries"]
        command += ["--prometheus-port", str(free_port()), "--prometheus-host", "127.0.0.1"]
        return Launch(command, {"NO_PROXY": "127.0.0.1", "RUST_LOG": "error"}, Path("/"))

    return build


def _paced(case: Case) -> bool:
    return case.paced and not case.streams


def _carries_many_ids(case: Case) -> bool:
    return case.token_ids > 1000


ALL: dict[str, Contestant] = {
    entry.name: entry
    for entry in (
        Contestant("ours", "this proxy, ids as base64", ours(True)),
        Contestant("ours-array", "this proxy, ids as array", ours(False), arrays=True),
        Contestant(
            "ours-coalesce",
            "this proxy, chunks gathered for up to 20 ms",
            ours(True, extra="access_log: false, stream_coalesce_ms: 20"),
            suits=_paced,
        ),
        Contestant(
            "ours-logging",
            "this proxy with access log and request log",
            ours(True, extra="access_log: true, request_log_dir: '{folder}'"),
            suits=lambda case: not case.streams,
        ),
        Contestant("over-aiohttp", "this proxy over aiohttp's client", ours(True, client="aiohttp")),
        Contestant("over-httpx", "this proxy over httpx's client", ours(True, client="httpx")),
        Contestant(
            "model",
            "model of today's orchestrator, ids as array",
            _application("bench.rivals.orchestrator_model", "fastapi", BENCH_BASE64="0"),
            arrays=True,
        ),
        Contestant(
            "model-b64",
            "model of today's orchestrator, ids as base64",
            _application("bench.rivals.orchestrator_model", "fastapi", BENCH_BASE64="1"),
        ),
        Contestant(
            "aiohttp",
            "bare two legs over aiohttp, no features",
            _application("bench.rivals.two_leg", "aiohttp", BENCH_CLIENT="aiohttp"),
        ),
        Contestant(
            "httpx",
            "bare two legs over httpx, no features",
            _application("bench.rivals.two_leg", "httpx", BENCH_CLIENT="httpx"),
        ),
        Contestant(
            "sglang-router",
            "sglang-router (Rust)",
            _gateway("sglang-router", "launch", "--pd-disaggregation"),
            "sglang",
        ),
        Contestant(
            "vllm-router", "vllm-router (Rust)", _gateway("vllm-router", "--vllm-pd-disaggregation"), "vllm"
        ),
        Contestant("smg", "smg (Rust)", _gateway("smg", "launch", "--pd-disaggregation"), "sglang"),
        Contestant("nginx", "nginx, one leg, client's bytes", _nginx, "plain"),
        Contestant("haproxy", "haproxy, one leg, client's bytes", _haproxy, "plain"),
        Contestant(
            "nginx-gen",
            "nginx, one leg, generation leg's bytes",
            _nginx,
            "plain",
            body="generation-leg",
            suits=_carries_many_ids,
        ),
        Contestant(
            "haproxy-gen",
            "haproxy, one leg, generation leg's bytes",
            _haproxy,
            "plain",
            body="generation-leg",
            suits=_carries_many_ids,
        ),
    )
}


def chosen(names: str) -> list[Contestant]:
    """Contestants of a comma-separated list; `all` stands for every one."""
    if names == "all":
        return list(ALL.values())
    unknown = [name for name in names.split(",") if name not in ALL]
    if unknown:
        raise SystemExit(f"no contestant named {unknown[0]!r}; known: {', '.join(ALL)}")
    return [ALL[name] for name in names.split(",")]
