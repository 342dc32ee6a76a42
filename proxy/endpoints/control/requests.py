"""POST /abort_request, GET /v1/loads and /flush_cache: the requests that run, and what they leave behind."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from proxy.endpoints.admin.fleet import ask, fleet_admission
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.answer import send_json
from proxy.endpoints.control.arguments import read_arguments, read_flag
from proxy.endpoints.control.fleet_workers import fleet_workers, shown
from proxy.errors import InvalidRequest, NotSupported
from proxy.fleet.member import Member
from proxy.lifecycle.commands import ABORT_REQUESTS

_ID_MEMBERS = ("rid", "request_id", "request_ids")
_ABORT_MEMBERS = frozenset({*_ID_MEMBERS, "abort_all"})


class AbortRequestEndpoint:
    """Ends requests by their ids (`x-request-id`, or `rid` in their bodies), or all of them, in whichever process
    they run or wait."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request: `{rid: id or list of ids}` or `{abort_all: true}`. Answers how many were ended; that an id
        is not known is no error, since its request may just have ended.

        Raises:
            InvalidRequest: it says neither.
            FleetIncomplete: not every process has been told.
        """
        read_query(scope, ())
        ids = _read_ids(await read_arguments(receive))
        answers = await ask(self._member, ABORT_REQUESTS, ids)
        await send_json(send, 200, {"aborted": sum(answer.result for answer in answers)})


def _read_ids(arguments: dict[str, Any]) -> list[str] | None:
    """The ids; None for all requests."""
    for name in arguments.keys() - _ABORT_MEMBERS:
        raise InvalidRequest(f"expected {', '.join(sorted(_ABORT_MEMBERS))}", param=name)
    if read_flag(arguments, "abort_all"):
        return None
    ids: list[str] = []
    for name in _ID_MEMBERS:
        value = arguments.get(name)
        given = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in given):
            message = f"{name} must be a string or a list of strings"
            raise InvalidRequest(message, code="invalid_type", param=name)
        ids += given
    if not ids:
        raise InvalidRequest("rid or abort_all is required", code="missing_required_parameter", param="rid")
    return ids


class LoadsEndpoint:
    """What runs on each worker and what waits in the proxy, so that a trainer can wait for nothing."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; its parameters are another router's and change nothing.

        Raises:
            FleetIncomplete: a process did not tell.
        """
        admission = await fleet_admission(self._member)
        workers = [shown(status) for status in await fleet_workers(self._member)]
        loads = [
            {"url": each["url"], "role": each["role"], "num_running_reqs": each["in_flight"]}
            for each in workers
        ]
        running = admission.in_flight + admission.orphans
        aggregate = {
            "total_running_reqs": running,
            "total_waiting_reqs": admission.queued,
            "total_reqs": running + admission.queued,
        }
        await send_json(send, 200, {"loads": loads, "aggregate": aggregate})


async def refuse_flush(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve /flush_cache and /reset_prefix_cache where no path of the workers does it. The proxy itself remembers
    nothing of prefixes, so there is nothing that it could clear instead.

    Raises:
        NotSupported: always.
    """
    raise NotSupported(
        "the workers' KV caches cannot be emptied over HTTP, so that prefixes computed with old weights may be "
        "used again: release and resume the workers' memory with the tag kv_cache, or name a path that does it in "
        "proxy.rl_flush_path"
    )
