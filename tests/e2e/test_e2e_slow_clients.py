"""Clients that read slowly: the worker is paused, and the proxy's memory does not grow."""

import time

import pytest
from e2e_bodies import CHAT, chat, completion
from e2e_processes import Processes
from e2e_raw import RawClient, request
from program import eventually

CLIENTS = 10
SECONDS = 3.0
PER_STREAM = 2 << 20
LONG = 60_000  # tokens: a stream of about 12 MB


@pytest.fixture
def processes(run_program, write_config):
    return Processes(run_program, write_config)


def warm_up(proxy):
    """Let the process grow to its working size first."""
    for _ in range(20):
        assert proxy.post(CHAT, chat(stream=True, max_tokens=200, ignore_eos=True)).status_code == 200
    return proxy.program.memory()


@pytest.mark.parametrize("make", [chat, completion], ids=["chat", "completions"])
def test_streams(processes, kind, make):
    """Ten clients read 1 KB per second of a stream of 12 MB each, which the worker sends as fast as it can."""
    processes.sim()
    proxy = processes.serve(processes.config(), kind)
    before = warm_up(proxy)
    body = make(stream=True, max_tokens=LONG, ignore_eos=True)
    clients = [RawClient(proxy.port, receive_buffer=4096) for _ in range(CLIENTS)]
    most = 0
    try:
        for client in clients:
            client.send(request(body))
        started = time.monotonic()
        while time.monotonic() < started + SECONDS:
            for client in clients:
                assert client.socket.recv(256)
            most = max(most, proxy.program.memory())
            time.sleep(0.25)
        assert proxy.metric("worker_in_flight", role="generation") == CLIENTS
        grown = (most - before) / CLIENTS
        assert grown < PER_STREAM, f"{grown / 2**20:.1f} MiB per stream"
        # Somebody who reads at full speed is served meanwhile.
        quick = proxy.post(CHAT, chat(stream=True))
        assert quick.status_code == 200
    finally:
        for client in clients:
            client.socket.close()
    eventually(lambda: not proxy.metric("worker_in_flight"), what="zero load")
    eventually(lambda: not proxy.metric("worker_connections", state="busy"), what="no busy connections")
    assert proxy.program.memory() - before < CLIENTS * PER_STREAM


def test_a_slow_client_still_gets_everything(processes, kind):
    """Pauses lose nothing: the whole stream arrives in order when the client wakes up."""
    processes.sim()
    proxy = processes.serve(processes.config(), kind)
    body = completion(stream=True, max_tokens=10_000, ignore_eos=True)
    with RawClient(proxy.port, receive_buffer=4096) as client:
        client.send(request(body))
        for _ in range(5):
            client.data += client.socket.recv(1024)
            time.sleep(0.1)
        _, _, slow = client.read_answer()
    quick = proxy.post("/v1/completions", body).content

    def texts(data):
        return [event.partition(b'"text":')[2].partition(b",")[0] for event in data.split(b"\n\n")]

    assert texts(slow) == texts(quick)
    assert len(texts(slow)) > 10_000


def test_a_client_that_stops_reading(processes):
    """After `client_stall_timeout` it is taken for gone, and the worker for free."""
    processes.sim()
    proxy = processes.serve(processes.config({"client_stall_timeout": 0.5}))
    with RawClient(proxy.port, receive_buffer=4096) as client:
        client.send(request(chat(stream=True, max_tokens=LONG, ignore_eos=True)))
        assert client.socket.recv(256)
        eventually(lambda: proxy.metric("worker_in_flight"), what="the stream")
        eventually(lambda: not proxy.metric("worker_in_flight"), 10, "the end of the stream")
        assert proxy.metric("worker_connections", state="busy") == 0


def test_a_paused_worker_is_not_blamed_for_silence(processes):
    """While the client does not read, the worker's idle deadline does not run."""
    processes.sim()
    proxy = processes.serve(processes.config({"timeout_idle": 0.3}))
    with RawClient(proxy.port, receive_buffer=4096) as client:
        client.send(request(chat(stream=True, max_tokens=10_000, ignore_eos=True)))
        client.data += client.socket.recv(1024)
        time.sleep(1.0)
        status, _, body = client.read_answer()
    assert status == 200
    assert body.endswith(b"data: [DONE]\n\n")


def test_large_answers_for_slow_clients(processes, kind):
    """Whole answers are held until they are taken, one each, and no longer."""
    processes.sim()
    proxy = processes.serve(processes.config(), kind)
    before = warm_up(proxy)
    body = chat(max_tokens=LONG, ignore_eos=True)  # about 0.5 MB of text
    clients = [RawClient(proxy.port, receive_buffer=4096) for _ in range(CLIENTS)]
    for client in clients:
        client.send(request(body))
    for client in clients:
        client.data += client.socket.recv(256)
    assert (proxy.program.memory() - before) / CLIENTS < PER_STREAM
    for client in clients:
        assert client.read_answer()[0] == 200
        client.socket.close()
