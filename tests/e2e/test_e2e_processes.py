"""Everything in processes of its own, as it is run: start, signals, draining, separate simulated workers."""

import signal
import threading
import time

import httpx
import pytest
from e2e_bodies import CHAT, answer_text, chat, completion, path_of, streamed_text
from e2e_processes import Processes
from e2e_raw import RawClient, request
from program import eventually

from proxy.sim import expected_text


@pytest.fixture
def processes(run_program, write_config):
    return Processes(run_program, write_config)


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
    def test_idle(self, processes, number):
        processes.sim()
        proxy = processes.serve(processes.config())
        assert proxy.post(CHAT, chat()).status_code == 200
        started = time.monotonic()
        proxy.program.process.send_signal(number)
        assert proxy.program.wait() == 0
        assert time.monotonic() - started < 5
        assert "Traceback" not in proxy.program.err

    def test_an_idle_keep_alive_connection_does_not_delay_the_end(self, processes):
        processes.sim()
        proxy = processes.serve(processes.config())
        with RawClient(proxy.port) as client:
            client.send(request(b"", path="/health", method="GET", length=False))
            assert client.read_answer()[0] == 200
            proxy.program.terminate()
            assert proxy.program.wait(5) == 0
            assert client.is_closed()

    def test_running_streams_finish(self, processes):
        """Not ready at once; new requests are served for the grace; what runs ends as if nothing had happened."""
        processes.sim("--decode-ms", "60")
        proxy = processes.serve(processes.config({"drain_grace": 3}))
        body = chat(stream=True, max_tokens=60, ignore_eos=True)
        answers = []
        with RawClient(proxy.port) as client, RawClient(proxy.port) as idle:
            idle.send(request(b"", path="/health", method="GET", length=False))
            assert idle.read_answer()[0] == 200
            client.send(request(body))
            client.data[:0] = client.read_until(b"\r\n\r\n")
            proxy.program.terminate()
            eventually(lambda: proxy.get("/health/ready").status_code == 503, 2, "unready")
            assert proxy.get("/health").status_code == 503
            assert proxy.get("/health/live").status_code == 200
            late = threading.Thread(
                target=lambda: answers.append(proxy.post(CHAT, chat(stream=True, max_tokens=2)))
            )
            late.start()
            status, _, data = client.read_answer()
            late.join(10)
            assert status == 200
            assert streamed_text(data.decode()) == expected_text(body)
            assert client.is_closed()
        assert streamed_text(answers[0].text) == expected_text(chat(max_tokens=2))
        assert proxy.program.wait() == 0
        with pytest.raises(httpx.ConnectError):
            proxy.get("/health")

    def test_what_does_not_finish_is_cut_off(self, processes):
        processes.sim("--decode-ms", "100")
        proxy = processes.serve(processes.config({"drain_timeout": 0.5}))
        with RawClient(proxy.port) as client:
            client.send(request(chat(stream=True, max_tokens=1000, ignore_eos=True)))
            client.read_until(b"\n\n")
            started = time.monotonic()
            proxy.program.terminate()
            assert proxy.program.wait() == 0
            assert 0.4 < time.monotonic() - started < 5
            assert b"[DONE]" not in client.read_to_end()

    def test_a_second_signal_hurries(self, processes):
        processes.sim("--decode-ms", "100")
        proxy = processes.serve(processes.config({"drain_grace": 30, "drain_timeout": 30}))
        with RawClient(proxy.port) as client:
            client.send(request(chat(stream=True, max_tokens=1000, ignore_eos=True)))
            client.read_until(b"\n\n")
            proxy.program.terminate()
            proxy.program.wait_for("draining")
            proxy.program.terminate()
            assert proxy.program.wait(5) == 0


class TestSeparateWorkers:
    """Context and generation workers in different processes: the KV travels over HTTP."""

    @pytest.fixture
    def proxy(self, processes):
        processes.sim("--name-prefix", "a-", context=2, generation=0)
        processes.sim("--name-prefix", "b-", context=0, generation=2)
        assert len(processes.workers) == 4
        return processes.serve(processes.config(gen_tokids_ctxbytes=True))

    def test_all_routes(self, processes, proxy):
        for body in (chat(), completion(), chat(max_tokens=3)):
            response = proxy.post(path_of(body), body)
            assert answer_text(response.json()) == expected_text(body)
            streamed = {**body, "stream": True}
            assert streamed_text(proxy.post(path_of(body), streamed).text) == expected_text(body)
        for address in processes.urls("context"):
            kv = httpx.get(f"http://{address}/sim/kv", trust_env=False).json()
            assert (kv["held"], kv["taken"]) == (0, 3)  # shared evenly
        assert not proxy.metric("worker_in_flight")


def test_workers_that_come_later(processes, run_program, write_config):
    """`serve` neither waits nor gives up: not ready until a worker of each role answers."""
    sim = processes.sim("--fault", '{"kind": "starting"}')
    config = processes.config({"server_start_timeout": 0.3})
    program = run_program("serve", "-c", config)
    port = int(program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])
    url = f"http://127.0.0.1:{port}"
    response = httpx.get(f"{url}/health", trust_env=False)
    assert response.status_code == 503
    refused = httpx.post(url + CHAT, json=chat(), trust_env=False)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "no_context_worker"
    program.wait_for("not ready after 0.3 s")
    for _, address in processes.workers:
        httpx.delete(f"http://{address}/sim/faults", trust_env=False)
    eventually(lambda: httpx.get(f"{url}/health", trust_env=False).status_code == 200, 10, "readiness")
    assert answer_text(httpx.post(url + CHAT, json=chat(), trust_env=False).json()) == expected_text(chat())
    sim.terminate()
    assert sim.wait() == 0


def test_the_log_names_the_request(processes):
    processes.sim()
    proxy = processes.serve(processes.config({"log_format": "json"}))
    headers = {"x-request-id": "find-me", "authorization": "Bearer secret-key"}
    body = chat(messages=[{"role": "user", "content": "private words"}])
    httpx.post(proxy.url + CHAT, json=body, headers=headers, trust_env=False)
    line = proxy.program.wait_for(r".*find-me.*")[0]
    assert '"status":200' in line
    assert "secret-key" not in proxy.program.err
    assert "private words" not in proxy.program.err
