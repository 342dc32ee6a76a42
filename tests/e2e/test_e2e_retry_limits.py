"""How far retries go while workers are killed: no storm, no chain of deaths, no hand-off under another id.

`pytest --log-cli-level=info` shows the figures.
"""

import asyncio
import logging
from collections import Counter

import httpx
import pytest
from e2e_bodies import CHAT, answer_text, chat
from e2e_server import ServerThread
from program import eventually

from proxy.config.load import load_settings
from proxy.sim import ThreadedSimCluster, expected_text

_logger = logging.getLogger(__name__)


@pytest.fixture
def serve():
    """Starts a cluster and a proxy in front of it."""
    running = []

    def start(context, generation=2, **keys):
        cluster = ThreadedSimCluster(context=context, generation=generation, record=20_000).start()
        running.append(cluster.stop)
        given = {
            "hostname": "127.0.0.1",
            "port": 0,
            "drain_grace": 0,
            "context_servers": {"urls": cluster.context_urls, "router": {"type": "load_balancing"}},
            "generation_servers": {"urls": cluster.generation_urls, "router": {"type": "load_balancing"}},
            **keys,
        }
        server = ServerThread(load_settings(None, overrides=given, environ={}), "own").start()
        running.append(server.stop)
        eventually(lambda: all(worker.ready for worker in server.service.registry.workers), what="all ready")
        return cluster, server

    yield start
    for stop in reversed(running):
        stop()


async def ask_all(server, number, at_once=32, **fields):
    """So many requests; their statuses. Each right answer is the answer to its own request."""
    waiting = list(range(number))
    statuses = Counter()

    async def some(client):
        while waiting:
            body = chat(messages=[{"role": "user", "content": f"request {waiting.pop()}"}], **fields)
            answer = await client.post(CHAT, json=body)
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                assert answer_text(answer.json()) == expected_text(body)

    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, limits=limits, trust_env=False, timeout=30) as client:
        await asyncio.gather(*(some(client) for _ in range(at_once)))
    return statuses


def placed(server, role):
    return sum(worker.placed for worker in server.service.registry.workers if worker.role == role)


@pytest.mark.parametrize("requests", [400, pytest.param(4000, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", ["refuse", "reset", "lying"])
async def test_half_of_the_context_workers_fail(serve, how, requests):
    """Gone, or resetting each request while its health is said to be fine, or answering 500 to everything."""
    cluster, server = await asyncio.to_thread(serve, 8)
    before = placed(server, "context")
    for worker in cluster.context_workers[:4]:
        if how == "refuse":
            await asyncio.to_thread(cluster.call, worker.refuse())
        elif how == "reset":
            worker.add_fault(kind="reset", route="inference")
        else:
            worker.add_fault(kind="status", status=500)
    statuses = await ask_all(server, requests)
    legs = placed(server, "context") - before
    _logger.info("%s: %d requests, %d context legs, %s", how, requests, legs, dict(statuses))
    assert statuses[200] >= 0.95 * requests
    # The budget is a fifth of the traffic.
    assert legs <= 1.2 * requests
    assert statuses.total() == requests


@pytest.mark.parametrize("max_retries", [0, 1, 2])
@pytest.mark.parametrize("leg", ["context", "generation"])
async def test_a_poisonous_request_takes_few_workers_with_it(serve, leg, max_retries):
    """Each worker that reads this leg of it breaks off."""
    cluster, server = await asyncio.to_thread(serve, 6, 6, max_retries=max_retries)
    workers = [worker for worker in cluster.workers if worker.role == leg]
    for worker in workers:
        worker.add_fault(kind="reset", leg=leg)
    statuses = await ask_all(server, 1, at_once=1)
    assert statuses == {502: 1}
    seen = [sum(request.leg == leg for request in worker.requests) for worker in workers]
    # A generation leg that was written is followed by one second pass at most.
    most = 1 + (max_retries if leg == "context" else min(max_retries, 1))
    assert sorted(seen, reverse=True)[:most] == [1] * most
    assert sum(seen) == most


@pytest.mark.parametrize("status", [429, 503])
async def test_a_generation_leg_that_is_refused_moves_with_its_id(serve, status):
    cluster, server = await asyncio.to_thread(serve, 1, 4)
    for worker in cluster.generation_workers[:2]:
        worker.add_fault(kind="status", status=status, leg="generation", count=5)
    statuses = await ask_all(server, 60, at_once=4)
    assert statuses == {200: 60}
    sent = Counter(ids(cluster.context_workers, "context"))
    taken = Counter(ids(cluster.generation_workers, "generation"))
    # One context leg for each request, and each refused leg once more under the same id.
    assert len(sent) == sent.total() == 60
    assert set(taken) == set(sent)
    refused = sum(worker.statuses[status] for worker in cluster.generation_workers)
    assert taken.total() == 60 + refused
    assert refused > 0
    assert cluster.kv.leftover == 0


def ids(workers, leg):
    return [
        request.json()["disaggregated_params"]["disagg_request_id"]
        for worker in workers
        for request in worker.requests
        if request.leg == leg
    ]
