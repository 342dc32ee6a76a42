"""A proxy that listens knows its workers: balancers without health checks send requests to whoever listens."""

import contextlib
import socket
import time

import httpx
import pytest
from free_port import free_port

from proxy.sim import ThreadedSimCluster

SECONDS = 60.0


def first_connection(port: int) -> socket.socket:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_request_is_served(run_program, write_config, processes):
    with ThreadedSimCluster(context=1, generation=1) as cluster:
        port = free_port()
        config = write_config(
            {
                "hostname": "127.0.0.1",
                "port": port,
                "context_servers": {"urls": cluster.context_urls},
                "generation_servers": {"urls": cluster.generation_urls},
                "proxy": {"drain_grace": 0},
            }
        )
        program = run_program("serve", "-c", config, "--workers", str(processes))
        with contextlib.closing(first_connection(port)) as sock:
            body = b'{"model": "sim", "prompt": "one two", "max_tokens": 3}'
            sock.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        program.terminate()
        assert program.wait(SECONDS) == 0


def test_without_workers_it_listens_and_says_so(run_program, write_config):
    config = write_config(
        {
            "hostname": "127.0.0.1",
            "port": 0,
            "context_servers": {"urls": [f"127.0.0.1:{free_port()}"]},
            "generation_servers": {"urls": [f"127.0.0.1:{free_port()}"]},
            "proxy": {"drain_grace": 0},
        }
    )
    program = run_program("serve", "-c", config)
    url = program.wait_for(r"running on (http://\S+)")[1]
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 503
    assert httpx.get(f"{url}/health/live", trust_env=False).status_code == 200
