"""One call to all workers: POST /admin/fanout/{path} for the paths in `rl_fanout_paths`, and the paths themselves.

The body goes out byte for byte, to every worker of the asked role at once, and never a second time: a worker that has
half taken new weights must not be asked again behind the trainer's back. `?role=` is the proxy's, the rest of the query
is the workers'.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_plus

import httpx
import msgspec
from starlette.types import Receive, Scope, Send

from proxy.config.address import WorkerAddress
from proxy.endpoints.answer import send_json
from proxy.errors import InvalidRequest, NotFound, NotReady
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.middleware.body import read_body
from proxy.router import REST
from proxy.telemetry.names import FANOUT_CALLS
from proxy.telemetry.series import Counter
from proxy.workers.probe import control_client
from proxy.workers.worker import Role

RL_AUTH_HEADER = "x-trtllm-rl-control-auth"
_CONTROL_AUTH = frozenset({RL_AUTH_HEADER, "x-trtllm-runtime-control-auth"})
_ROLES: dict[str, tuple[Role, ...]] = {
    "all": (Role.CONTEXT, Role.GENERATION),
    "context": (Role.CONTEXT,),
    "generation": (Role.GENERATION,),
}
_PASSED = frozenset({b"content-type", b"accept", b"traceparent", b"tracestate"})
_PREFIX = b"x-trtllm-"
# The hand-offs' own signature is made by the proxy alone.
_NEVER = frozenset({b"x-trtllm-disagg-auth", b"x-trtllm-msgpack"})
# Of one worker's answer; more is not read.
_LONGEST_ANSWER = 1024 * 1024


class Fanout:
    """Calls workers.

    Args:
        service: its registry tells the workers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._proxy = service.settings.proxy
        self._key = service.settings.internal_request_auth_key
        self._forwarded = frozenset(name.encode() for name in self._proxy.forward_headers)
        self._calls = Counter(service.member.row, FANOUT_CALLS)

    async def serve(self, path: str, scope: Scope, receive: Receive, send: Send, *, method: str = "") -> None:
        """Call `path` of all workers and tell what each of them answered.

        Answers 200 when all workers answered with a 2xx, 207 when some did and 502 when none did, always with
        `{"results": {url: {"status", "body"} or {"error"}}}`.

        Args:
            path: of the workers.
            scope, receive, send: of the request.
            method: that of the request if empty.

        Raises:
            InvalidRequest, BodyTooLarge, ClientGone: nobody has been called.
            NotReady: there are no workers of this role.
        """
        roles, query = _split_query(scope["query_string"].decode("latin-1"))
        body = await read_body(receive, self._proxy.max_body_bytes)
        addresses = self._addresses(roles)
        if not addresses:
            raise NotReady("no workers of this role are listed")
        url = f"{path}?{query}" if query else path
        headers = self._headers(scope, body)
        results = await asyncio.gather(
            *(self._call(address, method or scope["method"], url, headers, body) for address in addresses)
        )
        for result in results:
            self._calls.add(1, (path, _outcome(result)))
        succeeded = sum(_outcome(result) == "ok" for result in results)
        status = 200 if succeeded == len(results) else 207 if succeeded else 502
        told = {_shown(address): result for address, result in zip(addresses, results, strict=True)}
        await send_json(send, status, {"results": told})

    def _addresses(self, roles: Iterable[Role]) -> list[WorkerAddress]:
        """Every process once, also one that serves in both roles, is draining or out of order."""
        registry = self._service.registry
        return list(dict.fromkeys(worker.address for role in roles for worker in registry.of_role(role)))

    def _headers(self, scope: Scope, body: bytes) -> list[tuple[str, str]]:
        found = [("x-request-id", scope[RECORD].request_id), ("accept-encoding", "identity")]
        for name, value in scope["headers"]:
            passed = name in _PASSED or name in self._forwarded or name.startswith(_PREFIX)
            if passed and name not in _NEVER:
                found.append((name.decode("latin-1"), value.decode("latin-1")))
        if self._key is not None and _CONTROL_AUTH.isdisjoint(name for name, _ in found):
            signature = hmac.new(self._key.encode(), body, hashlib.sha256).hexdigest()
            found.append((RL_AUTH_HEADER, f"sha256={signature}"))
        return found

    async def _call(
        self,
        address: WorkerAddress,
        method: str,
        url: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
    ) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._proxy.rl_fanout_timeout):
                async with control_client(address, self._service.registry.access) as client:
                    request = client.build_request(method, url, content=body or None, headers=[*headers])
                    answer = await client.send(request, stream=True)
                    try:
                        return {"status": answer.status_code, "body": await _read(answer)}
                    finally:
                        await answer.aclose()
        except TimeoutError:
            return {"error": f"no complete answer within {self._proxy.rl_fanout_timeout:g} s"}
        except (httpx.HTTPError, OSError) as error:
            return {"error": str(error) or type(error).__name__}


class FanoutEndpoint:
    """The paths of `rl_fanout_paths`, behind `/admin/fanout` or as they are.

    Args:
        fanout: calls the workers.
        paths: that may be called.
        path: of the workers; that behind `/admin/fanout` when None.
        method: of the calls; that of the request when empty.
    """

    def __init__(
        self, fanout: Fanout, paths: Sequence[str] = (), *, path: str | None = None, method: str = ""
    ) -> None:
        self._fanout = fanout
        self._paths = frozenset(paths)
        self._path = path
        self._method = method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            NotFound: the path is not listed.
            InvalidRequest, NotReady: see `Fanout.serve`.
        """
        path = self._path
        if path is None:
            path = f"/{scope[REST]}"
            if path not in self._paths:
                raise NotFound(f"{path} is not among proxy.rl_fanout_paths")
        await self._fanout.serve(path, scope, receive, send, method=self._method)


def _split_query(query: str) -> tuple[tuple[Role, ...], str]:
    """The roles that are asked for, and the query without them, otherwise untouched."""
    roles, kept = _ROLES["all"], []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) != "role":
            kept.append(part)
            continue
        found = _ROLES.get(unquote_plus(value))
        if found is None:
            raise InvalidRequest(f"role must be one of {', '.join(_ROLES)}", param="role")
        roles = found
    return roles, "&".join(kept)


async def _read(answer: httpx.Response) -> Any:
    """The body: JSON as such, everything else as text; cut off where it is too long."""
    body = b""
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > _LONGEST_ANSWER:
            return body[:_LONGEST_ANSWER].decode("utf-8", "replace")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")


def _outcome(result: dict[str, Any]) -> str:
    if "error" in result:
        return "no_answer"
    return "ok" if 200 <= result["status"] < 300 else "refused"


def _shown(address: WorkerAddress) -> str:
    return address.base_url if address.unix_path is None else address.text
