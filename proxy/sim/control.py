"""The ``/sim/...`` routes: fault switches, counts, recorded requests, and the KV for other processes."""

import base64
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec
from starlette.types import Scope, Send

from proxy.sim.faults import read_faults
from proxy.sim.kv import HandoffError

if TYPE_CHECKING:
    from proxy.sim.worker import SimWorker

Answer = tuple[int, Any]


async def control(worker: "SimWorker", scope: Scope, body: bytes, send: Send) -> None:
    """Answer a control request; ``?worker=name`` addresses another worker of the same process."""
    query = {name: values[-1] for name, values in parse_qs(scope["query_string"].decode()).items()}
    named = worker.siblings.get(query.get("worker", worker.name))
    handler = HANDLERS.get((scope["method"], scope["path"]))
    if named is None:
        status, answer = 404, {"error": f"no worker {query['worker']!r} in this process"}
    elif handler is None:
        status, answer = 404, {"error": "no such control route"}
    else:
        status, answer = await handler(named, query, body)
    encoded = msgspec.json.encode(answer)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(encoded))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": encoded})


async def _stats(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    return 200, worker.stats()


async def _all_stats(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    return 200, {name: sibling.stats() for name, sibling in worker.siblings.items()}


async def _requests(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    shown = []
    for request in worker.requests:
        entry: dict[str, Any] = {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "headers": [list(pair) for pair in request.headers],
            "size": request.size,
            "leg": request.leg,
            "body": None,
        }
        if request.body is not None:
            try:
                entry["body"] = request.json()
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                entry["body_base64"] = base64.b64encode(request.body).decode()
        shown.append(entry)
    return 200, shown


async def _forget_requests(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    worker.clear_records()
    return 200, {}


async def _faults(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    return 200, worker.board.faults


async def _add_faults(worker: "SimWorker", query: dict[str, str], body: bytes) -> Answer:
    try:
        faults = read_faults(body)
    except (ValueError, msgspec.DecodeError) as error:
        return 400, {"error": str(error)}
    for fault in faults:
        worker.add_fault(fault)
    return 200, worker.board.faults


async def _clear_faults(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    worker.board.clear(query.get("kind"))
    await worker.sync_listener()
    return 200, worker.board.faults


async def _kv(worker: "SimWorker", query: dict[str, str], _: bytes) -> Answer:
    return 200, {**worker.kv.counts(worker.name).as_dict(), "held_ids": worker.kv.held_ids(worker.name)}


async def _take_kv(worker: "SimWorker", query: dict[str, str], body: bytes) -> Answer:
    try:
        asked = msgspec.json.decode(body)
        name, request_id = asked["worker"], asked["disagg_request_id"]
        if asked.get("waiting") and not worker.kv.peek(name, request_id):
            return 404, {"error": f"no KV cache for disagg_request_id {request_id} yet"}
        return 200, worker.kv.take(name, request_id).as_dict()
    except HandoffError as error:
        return 404, {"error": str(error)}
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        return 400, {"error": repr(error)}


HANDLERS: dict[tuple[str, str], Callable[["SimWorker", dict[str, str], bytes], Awaitable[Answer]]] = {
    ("GET", "/sim/stats"): _stats,
    ("GET", "/sim/stats/all"): _all_stats,
    ("GET", "/sim/requests"): _requests,
    ("DELETE", "/sim/requests"): _forget_requests,
    ("GET", "/sim/faults"): _faults,
    ("POST", "/sim/faults"): _add_faults,
    ("DELETE", "/sim/faults"): _clear_faults,
    ("GET", "/sim/kv"): _kv,
    ("POST", "/sim/kv/take"): _take_kv,
}
