import asyncio
import gc
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest

from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.workers.probe import control_client, is_starting, probe_worker


def answer(status: int, body: bytes | str = b"", headers: str = "") -> bytes:
    body = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status} X\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


MODELS = '{"object":"list","data":[{"id":"llama","object":"model"},{"id":"lora","object":"model"}]}'
HEALTHY = {
    "/health": answer(200),
    "/version": answer(200, '{"version": "1.3.0rc24"}'),
    "/v1/models": answer(200, MODELS),
}
STARTING_BODY = (
    '{"error": {"message": "still initializing", "type": "ServiceUnavailableError", "code": "starting"}}'
)
STARTING = answer(503, STARTING_BODY, "retry-after: 1\r\nx-trtllm-server-state: starting\r\n")


class Worker:
    """A worker that answers each path with given bytes, closes without bytes and hangs without an entry."""

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head)
                path = head.split(b" ", 2)[1].decode()
                if path not in self.answers:
                    await reader.read()
                    break
                writer.write(self.answers[path])
                if (
                    not self.answers[path].startswith(b"HTTP/1.1 ")
                    or b"content-length" not in self.answers[path]
                ):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def running(worker: Worker, path: str | None = None) -> AsyncIterator[WorkerAddress]:
    if path is not None:
        server = await asyncio.start_unix_server(worker.serve, path)
        address = parse_worker_address(f"unix:{path}")
    else:
        server = await asyncio.start_server(worker.serve, "127.0.0.1", 0)
        address = parse_worker_address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        yield address


async def probe(answers: Mapping[str, bytes], timeout: float = 5.0, **options):
    worker = Worker(answers)
    async with running(worker) as address, control_client(address) as client:
        result = await probe_worker(client, address, timeout, **options)
        assert result.address == address
    return result


async def test_healthy_worker():
    result = await probe(HEALTHY)
    assert result.healthy
    assert (result.state, result.version, result.models, result.detail) == (
        "healthy",
        "1.3.0rc24",
        ("llama", "lora"),
        "",
    )
    assert result.latency_ms is not None
    assert 0 < result.latency_ms < 5000


async def test_health_alone():
    worker = Worker({"/health": answer(204)})
    async with running(worker) as address, control_client(address) as client:
        result = await probe_worker(client, address, 5.0, identify=False)
    assert result.healthy
    assert (result.version, result.models) == (None, ())
    assert [request.split(b"\r\n")[0] for request in worker.requests] == [b"GET /health HTTP/1.1"]


@pytest.mark.parametrize(
    ("health", "state", "detail"),
    [
        (STARTING, "starting", f"status 503: {STARTING_BODY}"),
        (answer(503, "", "X-TRTLLM-Server-State: Starting\r\n"), "starting", "status 503:"),
        (answer(503, STARTING_BODY), "starting", f"status 503: {STARTING_BODY}"),
        (answer(503, "LLM is unavailable.\nCheck."), "unhealthy", "status 503: LLM is unavailable. Check."),
        (answer(503, '{"error": {"code": [1]}}'), "unhealthy", 'status 503: {"error": {"code": [1]}}'),
        (answer(503, '{"error": "starting"}'), "unhealthy", 'status 503: {"error": "starting"}'),
        (answer(503, "[" * 5000), "unhealthy", "status 503: " + "[" * 107 + "…"),
        (answer(500, b"\xff"), "unhealthy", "status 500: \N{REPLACEMENT CHARACTER}"),
        (answer(404, '{"detail":"Not Found"}'), "unhealthy", 'status 404: {"detail":"Not Found"}'),
        (answer(307, "", "location: http://127.0.0.1:1/\r\n"), "unhealthy", "status 307:"),
        (b"", "unreachable", "Server disconnected without sending a response."),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "unreachable", "illegal status line: bytearray(b'SSH-2.0-OpenSSH_9')"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", "unreachable", None),
    ],
)  # fmt: skip
async def test_other_states(health, state, detail):
    result = await probe(HEALTHY | {"/health": health}, timeout=0.5 if detail is None else 5.0)
    assert not result.healthy
    assert result.state == state
    assert result.detail == (detail or "no answer within 0.5 s")
    assert (result.version, result.models) == (None, ())
    assert (result.latency_ms is None) == (state == "unreachable")


async def test_connection_refused():
    async with running(Worker({})) as address:
        pass
    async with control_client(address) as client:
        result = await probe_worker(client, address, 5.0)
    assert (result.state, result.latency_ms) == ("unreachable", None)
    assert result.detail == "All connection attempts failed"


async def test_unknown_host():
    address = parse_worker_address("nowhere.invalid:8001")
    async with control_client(address) as client:
        result = await probe_worker(client, address, 5.0)
    assert result.state == "unreachable"
    assert result.detail


async def test_hanging_worker():
    result = await probe({}, timeout=0.05)
    assert (result.state, result.detail) == ("unreachable", "no answer within 0.05 s")


@pytest.mark.parametrize(
    ("version", "models"),
    [
        (answer(404), answer(404)),
        (answer(200, "no json"), answer(200, b"\xff\xfe")),
        (answer(200, "[1]"), answer(200, "[1]")),
        (answer(200, '{"version": 1}'), answer(200, '{"data": {}}')),
        (answer(200, "{}"), answer(200, '{"data": [1, {"id": 2}, {}]}')),
        (answer(500, '{"version": "1"}'), answer(500, MODELS)),
        (b"", b"garbage\r\n\r\n"),
        (answer(200, "[" * 5000), answer(200, '"' + "x" * 1_000_000)),
    ],
)
async def test_a_worker_that_does_not_say_what_it_is_stays_healthy(version, models):
    result = await probe(HEALTHY | {"/version": version, "/v1/models": models})
    assert result.healthy
    assert (result.version, result.models) == (None, ())


async def test_hanging_identity_keeps_to_the_deadline():
    loop = asyncio.get_running_loop()
    started = loop.time()
    result = await probe({"/health": answer(200), "/v1/models": HEALTHY["/v1/models"]}, timeout=0.2)
    assert result.healthy
    assert (result.version, result.models) == (None, ("llama", "lora"))
    assert loop.time() - started < 2


async def test_endless_body_is_not_read_to_the_end():
    worker = Worker({"/health": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 8_000_000})
    async with running(worker) as address, control_client(address) as client:
        assert (await probe_worker(client, address, 5.0, identify=False)).healthy


async def test_unix_socket(tmp_path):
    worker = Worker(HEALTHY)
    async with running(worker, str(tmp_path / "w.sock")) as address, control_client(address) as client:
        result = await probe_worker(client, address, 5.0)
    assert (result.state, result.version) == ("healthy", "1.3.0rc24")
    assert b"\r\nHost: localhost\r\n" in worker.requests[0]


async def test_missing_unix_socket(tmp_path):
    address = parse_worker_address(f"unix:{tmp_path}/none.sock")
    async with control_client(address) as client:
        result = await probe_worker(client, address, 5.0)
    assert result.state == "unreachable"


async def test_each_call_has_its_own_connection():
    worker = Worker(HEALTHY)
    async with running(worker) as address, control_client(address) as client:
        for _ in range(3):
            assert (await probe_worker(client, address, 5.0, identify=False)).healthy
    assert worker.connections == 3


async def test_proxy_variables_are_not_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    assert (await probe(HEALTHY)).healthy


async def test_https_verifies_certificates():
    async with running(Worker(HEALTHY)) as plain:
        address = parse_worker_address(f"https://{plain.text}")
        async with control_client(address) as client:
            assert isinstance(client._transport, httpx.AsyncHTTPTransport)
            context = client._transport._pool._ssl_context
            assert context is not None
            assert context.verify_mode is ssl.CERT_REQUIRED
            result = await probe_worker(client, address, 0.3)
            assert (result.state, result.detail) == ("unreachable", "no answer within 0.3 s")
    gc.collect()  # a socket left behind would be reported here


async def test_cancellation_passes_through():
    worker = Worker({})
    async with running(worker) as address, control_client(address) as client:
        task = asyncio.create_task(probe_worker(client, address, 60.0))
        while not worker.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_only_503_is_starting():
    headers = httpx.Headers({"x-trtllm-server-state": "starting"})
    assert is_starting(503, headers, b"")
    assert not is_starting(200, headers, b"")
    assert not is_starting(503, httpx.Headers(), json.dumps({"code": "starting"}).encode())
