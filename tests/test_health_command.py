"""`disagg-proxy health`: exit codes, waiting, where it looks."""

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from certificates import Authority, needs_openssl
from free_port import free_port

from proxy.config.load import load_settings
from proxy.health_command import run_health


class Answers(http.server.BaseHTTPRequestHandler):
    """Counts down `failures`, then answers 200; remembers the paths."""

    failures = 0
    paths: list[str]

    def do_GET(self) -> None:
        type(self).paths.append(self.path)
        self.send_response(503 if type(self).failures > 0 else 200)
        type(self).failures -= 1
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[Answers], int]]:
    handler = type("Handler", (Answers,), {"paths": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler, running.server_port
        running.shutdown()
        thread.join()


def settings(port: int, hostname: str = "0.0.0.0", **more: object):
    return load_settings(None, overrides={"hostname": hostname, "port": port, **more}, environ={})


@pytest.mark.parametrize(("ready", "path"), [(False, "/health/live"), (True, "/health")])
def test_healthy(server, capsys, ready, path):
    handler, port = server
    assert run_health(settings(port), ready=ready, wait=0) == 0
    assert handler.paths == [path]
    assert capsys.readouterr() == ("", "")


def test_asked_once_without_wait(server, capsys):
    handler, port = server
    handler.failures = 1
    assert run_health(settings(port), ready=True, wait=0) == 1
    assert capsys.readouterr().err == f"disagg-proxy: /health of 127.0.0.1 port {port} answered 503\n"


def test_waits_until_it_is_healthy(server):
    handler, port = server
    handler.failures = 2
    assert run_health(settings(port), ready=True, wait=60) == 0
    assert len(handler.paths) == 3


def test_nobody_listens(capsys):
    port = free_port()
    assert run_health(settings(port, "127.0.0.1"), ready=False, wait=0.1) == 1
    assert "cannot be asked" in capsys.readouterr().err


def test_a_server_that_asks_for_certificates_is_only_connected_to(capsys):
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        tls = settings(port, tls_certfile="cert.pem", tls_client_ca="ca.pem")
        assert run_health(tls, ready=True, wait=0) == 0
    assert run_health(tls, ready=True, wait=0) == 1
    assert "cannot be asked" in capsys.readouterr().err


@needs_openssl
def test_tls_with_a_certificate_that_names_another_host(server, tmp_path):
    handler, _ = server
    certificate, key = Authority(tmp_path).sign("public-name")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.HTTPServer(("127.0.0.2", 0), handler) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.handle_request)
        thread.start()
        tls = settings(running.server_port, "127.0.0.2", tls_certfile=certificate, tls_keyfile=key)
        assert run_health(tls, ready=False, wait=0) == 0
        thread.join()
    assert handler.paths == ["/health/live"]


def test_command(run_program, server):
    handler, port = server
    program = run_program("health", environment={"DISAGG_PROXY_PORT": str(port)})
    assert program.wait() == 0, program.err
    assert handler.paths == ["/health/live"]
    program = run_program("health", "--port", str(free_port()))
    assert program.wait() == 1
    assert program.err.startswith("disagg-proxy: /health/live of localhost port ")
