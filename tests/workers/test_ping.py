import asyncio

import pytest
from test_probe import HEALTHY, STARTING, Worker, answer, running

from proxy.workers.ping import Finding, Pinger


async def ping(answers, *, timeout=5.0, times=1, **options):
    worker = Worker(answers)
    async with running(worker) as address:
        pinger = Pinger(address, timeout=timeout)
        results = [await pinger.ping(**options) for _ in range(times)]
        await pinger.close()
    return worker, results


@pytest.mark.parametrize(
    ("health", "finding", "detail"),
    [
        (answer(200), Finding.HEALTHY, ""),
        (answer(204), Finding.HEALTHY, ""),
        (STARTING, Finding.LOADING, ""),
        (answer(503, '{"error": {"code": "starting"}}'), Finding.LOADING, ""),
        (
            answer(503, "LLM is unavailable.\nCheck."),
            Finding.UNHEALTHY,
            "status 503: LLM is unavailable. Check.",
        ),
        (answer(500, b"\xff"), Finding.UNHEALTHY, "status 500: \N{REPLACEMENT CHARACTER}"),
        (answer(404), Finding.UNHEALTHY, "status 404:"),
        (b"", Finding.UNHEALTHY, "the worker closed the connection"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", Finding.UNHEALTHY, "the worker's answer is not valid HTTP: "),
    ],
)
async def test_findings(health, finding, detail):
    _, (result,) = await ping({"/health": health})
    assert result.finding is finding
    assert result.detail.strip().startswith(detail)


async def test_one_connection_serves_all_probes():
    worker, results = await ping(HEALTHY, times=5)
    assert {result.finding for result in results} == {Finding.HEALTHY}
    assert all(0 < result.seconds < 5 for result in results)
    assert (worker.connections, len(worker.requests)) == (1, 5)
    assert worker.requests[0].startswith(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1:")


async def test_a_new_connection_when_asked_for():
    worker, _ = await ping(HEALTHY, times=3, fresh=True)
    assert worker.connections == 3


async def test_a_connection_that_the_worker_closed_is_replaced():
    worker = Worker(HEALTHY)
    async with running(worker) as address:
        pinger = Pinger(address, timeout=5)
        await pinger.ping()
        worker.answers = {**HEALTHY, "/health": b""}  # closes without an answer
        first = await pinger.ping()
        worker.answers = HEALTHY
        second = await pinger.ping()
        await pinger.close()
    # The old connection was closed under the request, and the new one likewise: that is a finding.
    assert first.finding is Finding.UNHEALTHY
    assert second.finding is Finding.HEALTHY
    assert worker.connections == 3


async def test_silence():
    _, (result,) = await ping({}, timeout=0.05)
    assert (result.finding, result.detail) == (Finding.SILENT, "no answer within 0.05 s")


async def test_nobody_listens(unused_tcp_port):
    from proxy.config.address import parse_worker_address

    pinger = Pinger(parse_worker_address(f"127.0.0.1:{unused_tcp_port}"), timeout=5)
    result = await pinger.ping()
    assert result.finding is Finding.UNHEALTHY
    assert "no connection" in result.detail


async def test_an_endless_answer_is_not_read():
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    huge = b"HTTP/1.1 503 X\r\ncontent-length: 99999999\r\n\r\n"
    assert (await ping({"/health": endless}))[1][0].finding is Finding.HEALTHY
    assert (await ping({"/health": huge}))[1][0].finding is Finding.UNHEALTHY


async def test_identity():
    worker = Worker(HEALTHY)
    async with running(worker) as address:
        pinger = Pinger(address, timeout=5)
        assert await pinger.identify() == ("1.3.0rc24", ("llama", "lora"))
        worker.answers = {"/version": answer(404), "/v1/models": answer(200, "no JSON")}
        assert await pinger.identify() == (None, ())
        await pinger.close()


async def test_a_unix_socket(tmp_path):
    worker = Worker(HEALTHY)
    async with running(worker, str(tmp_path / "w.sock")) as address:
        pinger = Pinger(address, timeout=5)
        assert (await pinger.ping()).finding is Finding.HEALTHY
        await pinger.close()


async def test_a_cancelled_probe_leaves_nothing():
    worker = Worker({})
    async with running(worker) as address:
        pinger = Pinger(address, timeout=60)
        task = asyncio.create_task(pinger.ping())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await pinger.close()
        await asyncio.sleep(0)
