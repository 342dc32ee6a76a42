"""POST /admin/pause and /admin/resume: hold new requests back, for example while the workers' weights change."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from proxy.endpoints.admin.fleet import FleetAdmission, FleetIncomplete, ask, fleet_admission, together
from proxy.endpoints.admin.query import read_query, read_seconds
from proxy.endpoints.answer import send_json
from proxy.errors import InvalidRequest, NotSupported, ProxyError
from proxy.fleet.member import Member
from proxy.lifecycle.commands import ABORT, KEPT_PAUSE, PAUSE, RESUME

_LOOK_AGAIN = 0.03
# vLLM's name and SGLang's for a pause in which requests stay where they are.
_KEEPING = frozenset({"keep", "in_place", "retract"})


class PauseTimeout(ProxyError):
    """Requests are still running; the pause goes on."""

    status = 504
    default_code = "pause_timeout"


class PauseEndpoint:
    """`mode=wait` (default) answers when nothing runs on the workers any more, `mode=abort` ends what runs first.

    `timeout` limits the waiting, seconds. The pause lasts until `resume`, also when the waiting was in vain or the
    caller has left.
    """

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest, NotSupported: another mode or parameter.
            PauseTimeout, FleetIncomplete: the pause goes on as far as it has come.
        """
        await self.pause(read_query(scope, ("mode", "timeout")), receive, send)

    async def pause(self, query: dict[str, str], receive: Receive, send: Send) -> None:
        """Serve a request with these parameters. Raises as `__call__` does."""
        mode = query.get("mode", "wait")
        seconds = read_seconds(query, "timeout")
        if mode in _KEEPING:
            raise NotSupported(f"mode={mode}: the workers cannot keep a request that does not run")
        if mode not in ("wait", "abort"):
            raise InvalidRequest("mode must be wait or abort", param="mode")
        await ask(self._member, PAUSE, keep=KEPT_PAUSE)
        if mode == "abort":
            await ask(self._member, ABORT)
        state = await self._idle(receive, seconds)
        if state is not None:
            await send_json(send, 200, state)

    async def _idle(self, receive: Receive, seconds: float) -> FleetAdmission | None:
        """Wait until nothing runs; None when the caller has left."""
        waiting = asyncio.create_task(self._until_idle())
        leaving = asyncio.create_task(_left(receive))
        try:
            done, _ = await asyncio.wait(
                {waiting, leaving}, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED
            )
            if waiting in done:
                return waiting.result()
            if leaving in done:
                return None
            raise PauseTimeout(f"requests are still running after {seconds:g} s; the pause goes on")
        finally:
            waiting.cancel()
            leaving.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)

    async def _until_idle(self) -> FleetAdmission:
        while True:
            # A process that cannot answer may be starting again: it comes back paused.
            try:
                state = await fleet_admission(self._member)
            except FleetIncomplete:
                state = None
            if state is not None and state.paused and state.idle:
                return state
            await asyncio.sleep(_LOOK_AGAIN)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class ResumeEndpoint:
    """Those who wait go on, in their order."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest: a parameter.
            FleetIncomplete: not every process has resumed.
        """
        read_query(scope, ())
        await send_json(send, 200, together(await ask(self._member, RESUME, keep=KEPT_PAUSE)))
