"""/pause, /resume and what other engines call them."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from proxy.endpoints.admin.fleet import fleet_admission
from proxy.endpoints.admin.pause import PauseEndpoint, ResumeEndpoint
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.answer import send_json
from proxy.endpoints.control.arguments import read_arguments
from proxy.errors import InvalidRequest, NotSupported
from proxy.fleet.member import Member

_BODY_MEMBERS = frozenset({"mode"})


class PauseStatusEndpoint:
    """GET /pause."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            FleetIncomplete: a process did not tell.
        """
        read_query(scope, ())
        await send_json(send, 200, await fleet_admission(self._member))


class PauseAliasEndpoint:
    """POST /pause as vLLM has it (`?mode=wait`, `abort` or `keep`, `clear_cache`), and /pause_generation as SGLang has
    it (`{mode: abort}`; its `in_place` and `retract` keep requests, which the workers cannot).

    Args:
        member: of the fleet.
        mode: when none is given.
    """

    def __init__(self, member: Member, *, mode: str) -> None:
        self._pause = PauseEndpoint(member)
        self._mode = mode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest, NotSupported: nothing has been paused.
            PauseTimeout, FleetIncomplete: the pause goes on as far as it has come.
        """
        query = read_query(scope, ("mode", "timeout", "clear_cache"))
        if query.pop("clear_cache", "false").lower() not in ("false", "0"):
            raise NotSupported("clear_cache: a pause does not empty the workers' KV caches; see /flush_cache")
        arguments = await read_arguments(receive)
        for name in arguments.keys() - _BODY_MEMBERS:
            raise InvalidRequest("expected mode", param=name)
        mode = arguments.get("mode", query.get("mode", self._mode))
        if not isinstance(mode, str):
            raise InvalidRequest("mode must be a string", code="invalid_type", param="mode")
        await self._pause.pause({**query, "mode": mode}, receive, send)


class ResumeAliasEndpoint:
    """POST /resume, /continue_generation, /resume_generation."""

    def __init__(self, member: Member) -> None:
        self._resume = ResumeEndpoint(member)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. SGLang's clients send a body with options of its engine, which mean nothing here.

        Raises:
            InvalidRequest, FleetIncomplete.
        """
        await read_arguments(receive)
        await self._resume(scope, receive, send)
