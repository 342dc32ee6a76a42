"""AIPerf and GuideLLM as the programs they are, in an environment of their own that `make test-long` makes."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_ENVIRONMENT = _HERE.parents[1] / ".venv-load"
_TOKENIZER = _HERE.parent / "tokenisation" / "models" / "qwen_like"
_SECONDS = 300
# Nothing listens there: neither program may fetch anything.
_NO_HUB = "http://127.0.0.1:9"

needs_load_generators = pytest.mark.skipif(
    not (_ENVIRONMENT / ".installed").exists(), reason="needs .venv-load, which `make test-long` makes"
)


@dataclass(frozen=True)
class Answered:
    """What a program tells of one request that succeeded.

    ``body``: what it sent; ``tokens``: the answer's, by the workers' usage; ``first_token_ms``: None if not streamed.
    """

    body: dict[str, Any]
    text: str
    tokens: int
    first_token_ms: float | None
    latency_ms: float


@dataclass(frozen=True)
class Report:
    """The outcome of a run; ``failed`` are the reasons of the requests that did not succeed."""

    answered: list[Answered]
    failed: list[str]


async def run_aiperf(directory: Path, urls: Sequence[str], *options: str) -> Report:
    """Profile servers, in turns; the program's files go to ``directory``."""
    servers = [argument for url in urls for argument in ("--url", url)]
    fixed = f"--model sim --tokenizer {_TOKENIZER} --ui none --no-gpu-telemetry --no-server-metrics --random-seed 1"
    exports = f"--export-level raw --export-outputs-json --output-artifact-dir {directory}"
    await _run(directory, "aiperf", "profile", *fixed.split(), *exports.split(), *servers, *options)
    records = _by_request(_lines(directory / "profile_export.jsonl"))
    sent = _by_request(_lines(directory / "profile_export_raw.jsonl"))
    texts = json.loads((directory / "outputs.json").read_text())["data"]
    failed = {key: record["error"]["type"] for key, record in records.items() if record.get("error")}
    return Report(
        answered=[
            _aiperf_answer(sent[key]["payload"], output["response_text"], records[key]["metrics"])
            for output in texts
            if (key := output["x_request_id"]) not in failed
        ],
        failed=[*failed.values()],
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _by_request(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["metadata"]["x_request_id"]: record for record in records}


def _aiperf_answer(body: dict[str, Any], text: str, metrics: dict[str, Any]) -> Answered:
    # AIPerf takes a stream that an error event ends for an answer: it looks for a line "event: error", which
    # OpenAI's streams do not have. Such an answer has no usage.
    usage = metrics.get("usage_completion_tokens", {"value": 0})
    return Answered(
        body=body,
        text=text,
        tokens=usage["value"],
        first_token_ms=metrics["time_to_first_token"]["value"] if body["stream"] else None,
        latency_ms=metrics["request_latency"]["value"],
    )


async def run_guidellm(
    directory: Path, url: str, backend: Mapping[str, Any], data: Mapping[str, Any], requests: int
) -> Report:
    """Benchmark a server with four streams; ``backend`` and ``data`` are the program's own options."""
    path = directory / "report.json"
    await _run(
        directory,
        "guidellm",
        "run",
        "--backend=" + json.dumps({"kind": "openai_http", "target": url, "model": "sim", **backend}),
        "--data=" + json.dumps({"kind": "synthetic_text", **data}),
        f"--tokenizer=kind=hf_auto,model={_TOKENIZER}",
        "--profile=kind=concurrent,streams=4",
        f"--constraint=kind=max_requests,count={requests}",
        f"--output=kind=json,path={path}",
        "--disable-console-interactive",
        HF_HUB_OFFLINE="1",
        GUIDELLM__MAX_WORKER_PROCESSES="1",
        # Its data sets would look for more of torch than the stand-in has.
        USE_TORCH="0",
        PYTHONPATH=str(_HERE / "stand_in"),
    )
    (benchmark,) = json.loads(path.read_text())["benchmarks"]
    ended = benchmark["requests"]
    return Report(
        answered=[_guidellm_answer(request) for request in ended["successful"]],
        failed=[str(request["info"]["error"]) for request in ended["errored"] + ended["incomplete"]],
    )


def _guidellm_answer(request: dict[str, Any]) -> Answered:
    arguments = json.loads(request["request_args"])
    return Answered(
        body=arguments["body"],
        text=request["output"],
        tokens=request["output_metrics"]["total_tokens"],
        first_token_ms=request["time_to_first_token_ms"] if arguments["stream"] else None,
        latency_ms=request["request_latency"] * 1000,
    )


async def _run(directory: Path, program: str, *arguments: str, **environment: str) -> None:
    """Run a program to its successful end; it is ended, with all its processes, when the test is."""
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = await asyncio.create_subprocess_exec(
        _ENVIRONMENT / "bin" / program,
        *arguments,
        cwd=directory,
        env={**inherited, "HOME": str(directory), "HF_ENDPOINT": _NO_HUB, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode == 0, output.decode()
