"""Asks one worker how it is: health, version and served models."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Literal

import httpx
import msgspec

from proxy.config.address import WorkerAddress
from proxy.upstream.access import WorkerAccess

State = Literal["healthy", "starting", "unhealthy", "unreachable"]

# The answers are small; more is not read, so that a wrong server cannot fill the memory.
_LONGEST_BODY = 256 * 1024
_LONGEST_DETAIL = 120
# httpcore 1.0 leaves the socket to the garbage collector when it is cancelled in a TLS handshake, and closes it
# when its own time-out ends the handshake: that one has to come first.
_CONNECT_SHARE = 0.9


class ProbeResult(msgspec.Struct, frozen=True):
    """What one probe found.

    `state`: `healthy` (answers `/health` with 2xx), `starting` (answers, but still loads its model),
    `unhealthy` (answers with another status) or `unreachable` (no complete answer in time).
    `latency_ms` is the time to the complete answer of `/health`, None without one. `version` and `models` are
    None and empty when unknown. `detail` says why the worker is not healthy, else it is empty.
    """

    address: WorkerAddress
    state: State
    latency_ms: float | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    detail: str = ""

    @property
    def healthy(self) -> bool:
        """True when the worker can take requests."""
        return self.state == "healthy"


class _Answer(msgspec.Struct, frozen=True):
    status: int
    headers: httpx.Headers
    body: bytes


def control_client(address: WorkerAddress, access: WorkerAccess | None = None) -> httpx.AsyncClient:
    """Return an HTTP client for calls about one worker (probes, look-ups), TCP or Unix socket.

    It follows no redirects, ignores proxy variables of the environment and opens a connection for each call:
    workers close idle ones after 5 s (`TIMEOUT_KEEP_ALIVE`), and a probe that hits this moment would report a
    sound worker as broken. Time-outs are the caller's. Close it with `aclose()`.
    """
    return httpx.AsyncClient(
        base_url=address.base_url,
        headers=access.headers if access is not None else None,
        timeout=None,  # noqa: S113
        transport=httpx.AsyncHTTPTransport(
            uds=address.unix_path,
            # Loading the certificate store takes tens of milliseconds; plain HTTP does without.
            verify=_tls_for(address, access) or False,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        ),
        trust_env=False,
    )


def _tls_for(address: WorkerAddress, access: WorkerAccess | None) -> ssl.SSLContext | None:
    if access is not None:
        return access.tls_for(address)
    return ssl.create_default_context() if address.scheme == "https" else None


async def probe_worker(
    client: httpx.AsyncClient, address: WorkerAddress, timeout: float, *, identify: bool = True
) -> ProbeResult:
    """Probe one worker within `timeout` seconds in total; never raises (but can be cancelled).

    GET `/health`; when that is 2xx and `identify` is true also GET `/version` and `/v1/models`, whose failure
    leaves the fields unknown and the worker healthy. `client` comes from `control_client(address)`.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    started = time.perf_counter()
    try:
        answer = await _get(client, address, "/health", deadline)
    except (TimeoutError, httpx.TimeoutException):
        return ProbeResult(address, "unreachable", detail=f"no answer within {timeout:g} s")
    except Exception as error:  # whatever goes wrong on the way is the finding of the probe
        return ProbeResult(address, "unreachable", detail=_shorten(str(error) or type(error).__name__))
    latency_ms = (time.perf_counter() - started) * 1000
    if not 200 <= answer.status < 300:
        state: State = "starting" if is_starting(answer.status, answer.headers, answer.body) else "unhealthy"
        detail = f"status {answer.status}: {answer.body.decode('utf-8', 'replace')}"
        return ProbeResult(address, state, latency_ms, detail=_shorten(detail))
    if not identify:
        return ProbeResult(address, "healthy", latency_ms)
    version, models = await asyncio.gather(
        _get_json(client, address, "/version", deadline), _get_json(client, address, "/v1/models", deadline)
    )
    return ProbeResult(address, "healthy", latency_ms, version_of(version), models_of(models))


def is_starting(status: int, headers: httpx.Headers, body: bytes) -> bool:
    """Tell a worker that still loads its model from a broken one.

    Such a worker answers every path with 503, `x-trtllm-server-state: starting` and the error code
    "starting"; one of the two marks suffices.
    """
    if status != 503:
        return False
    if headers.get("x-trtllm-server-state", "").lower() == "starting":
        return True
    return starting_code(body)


def starting_code(body: bytes) -> bool:
    """Whether the body of an answer has the error code of a worker that loads its model."""
    code = _member(_member(_decode(body), "error"), "code")
    return isinstance(code, str) and code == "starting"


async def _get(client: httpx.AsyncClient, address: WorkerAddress, path: str, deadline: float) -> _Answer:
    remaining = max(0.0, deadline - asyncio.get_running_loop().time())
    limits = httpx.Timeout(None, connect=remaining * _CONNECT_SHARE)
    body = bytearray()
    async with (
        asyncio.timeout_at(deadline),
        client.stream("GET", f"{address.base_url}{path}", timeout=limits) as response,
    ):
        async for part in response.aiter_bytes():
            body += part
            if len(body) > _LONGEST_BODY:
                break
        return _Answer(response.status_code, response.headers, bytes(body[:_LONGEST_BODY]))


async def _get_json(client: httpx.AsyncClient, address: WorkerAddress, path: str, deadline: float) -> Any:
    try:
        answer = await _get(client, address, path, deadline)
    except Exception:  # the worker is healthy; what it does not tell stays unknown
        return None
    return _decode(answer.body) if answer.status == 200 else None


def version_of(document: Any) -> str | None:
    """The version in the answer of `/version`, if there is one."""
    version = _member(document, "version")
    return version if isinstance(version, str) else None


def models_of(document: Any) -> tuple[str, ...]:
    """The names in the answer of `/v1/models`, as far as they are there."""
    entries = _member(document, "data")
    names = [_member(entry, "id") for entry in entries] if isinstance(entries, list) else []
    return tuple(name for name in names if isinstance(name, str))


def batch_size_of(document: Any) -> int | None:
    """The `max_batch_size` in the answer of `/server_info`, if it is there and makes sense."""
    size = _member(document, "max_batch_size")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _member(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_DETAIL else f"{line[: _LONGEST_DETAIL - 1]}…"
