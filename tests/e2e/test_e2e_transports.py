"""Workers behind Unix sockets and TLS; the application under Starlette's test client."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from e2e_bodies import answer_text, chat, completion, streamed_text
from e2e_stack import settings_for
from program import eventually
from starlette.testclient import TestClient

from proxy.app import Application
from proxy.sim import ThreadedSimCluster, expected_text


def check(post):
    """Both routes, streamed and not."""
    for body in (chat(), completion()):
        assert answer_text(post(body).json()) == expected_text(body)
        streamed = {**body, "stream": True}
        assert streamed_text(post(streamed).text) == expected_text(body)


@pytest.fixture(scope="module")
def directory():
    # pytest's own directories have names too long for a socket address.
    path = tempfile.mkdtemp(prefix="sim-")
    yield path
    shutil.rmtree(path)


def test_workers_behind_unix_sockets(directory, make_stack, kind):
    path = Path(directory) / kind
    path.mkdir()
    stack = make_stack({"unix_directory": str(path)})
    assert all(url.startswith("unix:/") for url in stack.cluster.context_urls)
    check(stack.post)
    assert stack.http.get("/v1/models").json()["data"][0]["id"] == "sim"
    assert dict(stack.requests("context")[0].headers)["host"] == "localhost"


def _has_ipv6():
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
def test_workers_behind_ipv6(make_stack):
    stack = make_stack({"host": "::1"})
    assert all(url.startswith("[::1]:") for url in stack.cluster.context_urls)
    check(stack.post)
    assert stack.requests("context")[0].header("host") == stack.cluster.context_urls[0]


class TLSFront:
    """Ends TLS in front of a worker."""

    def __init__(self, certificate, key, target):
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks = set()
        self._thread.start()
        self.port = self._call(self._start())

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        host, _, port = self._target.rpartition(":")
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        for source, sink in ((reader, inner_writer), (inner_reader, writer)):
            task = asyncio.ensure_future(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source, sink):
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            sink.close()

    async def _stop(self):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self):
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost and its key, made with the openssl command."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is not installed")
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return certificate, key


class TestTLS:
    @pytest.fixture
    def urls(self, certificate):
        with ThreadedSimCluster(1, 1) as cluster:
            fronts = [TLSFront(*certificate, worker.address) for worker in cluster.workers]
            yield [f"https://localhost:{front.port}" for front in fronts]
            for front in fronts:
                front.stop()

    def test_a_certificate_that_is_trusted(self, urls, certificate, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        with TestClient(Application(settings_for(urls[:1], urls[1:]))) as client:
            eventually(lambda: client.get("/health").status_code == 200, what="readiness")
            check(lambda body: client.post(_path(body), json=body))

    def test_a_certificate_that_is_not(self, urls):
        settings = settings_for(urls[:1], urls[1:], probe_interval=0.05)
        with TestClient(Application(settings)) as client:
            for _ in range(5):
                assert client.get("/health").status_code == 503
            response = client.post("/v1/completions", json=completion())
            assert response.status_code == 503


def _path(body):
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


class TestUnderStarlette:
    """A third ASGI server: Starlette's test client, which runs the application in memory."""

    @pytest.fixture
    def client(self):
        with (
            ThreadedSimCluster(1, 1) as cluster,
            TestClient(Application(settings_for(cluster.context_urls, cluster.generation_urls))) as client,
        ):
            eventually(lambda: client.get("/health").status_code == 200, what="readiness")
            yield client
            assert cluster.kv.leftover == 0

    def test_all_routes(self, client):
        check(lambda body: client.post(_path(body), json=body))

    def test_errors(self, client):
        response = client.post("/v1/completions", json={"model": "sim"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "prompt"
        assert client.get("/nowhere").status_code == 404
        assert client.post("/v1/models").headers["allow"] == "GET, HEAD"
