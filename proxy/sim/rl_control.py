"""The memory and weight routes, which trainers call; there when the worker has ``rl_control``."""

import hashlib
import hmac
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Scope

from proxy.sim.recorded import RecordedRequest
from proxy.sim.reply import Reply

if TYPE_CHECKING:
    from proxy.sim.worker import SimWorker

AUTH_HEADER = b"x-trtllm-rl-control-auth"
TAGS = frozenset({"model", "kv_cache", "weights"})
ROUTES: dict[str, str] = {
    "/release_memory": "POST",
    "/resume_memory": "POST",
    "/update_weights": "POST",
    "/memory_status": "GET",
}

_encode = msgspec.json.encode


async def serve_rl_control(worker: "SimWorker", scope: Scope, raw: bytes, reply: Reply) -> None:
    """Answer a call of one of `ROUTES`; each call is kept in ``worker.control_calls``."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    worker.control_calls.append(
        RecordedRequest(
            method=scope["method"],
            path=scope["path"],
            query=scope["query_string"].decode("latin-1"),
            headers=tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]),
            body=raw,
            size=len(raw),
            leg=None,
        )
    )
    if worker.board.faults:
        reply.apply(worker.board.take_answer("rl_control", None))
        await reply.intercept()
    if scope["method"] != ROUTES[scope["path"]]:
        await reply.json(b'{"detail":"Method Not Allowed"}', 405)
    elif not _is_signed(worker.settings.auth_key, raw, headers.get(AUTH_HEADER)):
        await reply.json(b'{"error":"the RL control signature is missing or wrong"}', 401)
    else:
        status, answer = _change(worker, scope["path"], raw)
        await reply.json(_encode(answer), status)


def _is_signed(key: str | None, raw: bytes, given: bytes | None) -> bool:
    if key is None:
        return True
    wanted = b"sha256=" + hmac.new(key.encode(), raw, hashlib.sha256).hexdigest().encode()
    return given is not None and hmac.compare_digest(given, wanted)


def _change(worker: "SimWorker", path: str, raw: bytes) -> tuple[int, Any]:
    released = worker.released_memory
    if path == "/memory_status":
        return 200, {"released": sorted(released)}
    try:
        body = msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    except msgspec.DecodeError as error:
        return 400, {"error": str(error)}
    if path == "/update_weights":
        return (200, {"status": "success"}) if "weights" in body else (400, {"error": "weights is required"})
    tags = body.get("tags") or sorted(TAGS)
    if not TAGS.issuperset(tags):
        return 400, {"error": f"unknown tag; known: {', '.join(sorted(TAGS))}"}
    releases = path == "/release_memory"
    if releases != released.isdisjoint(tags):
        return 409, {"error": f"the memory is {'already' if releases else 'not'} released"}
    released.update(tags) if releases else released.difference_update(tags)
    return 200, {"status": "success"}
