"""POST /admin/drain: end this proxy as SIGTERM does, finishing what runs."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from proxy.endpoints.admin.fleet import ask
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.answer import send_json
from proxy.fleet.member import Member


class DrainEndpoint:
    """Answers at once; `/health/ready` says no from then on."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest: a parameter.
            FleetIncomplete: the processes cannot be reached.
        """
        read_query(scope, ())
        await ask(self._member, "drain")
        await send_json(send, 202, {"draining": True})
