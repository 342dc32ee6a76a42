"""GET /admin/status: the fleet in numbers, and each of its processes."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.endpoints.admin.fleet import ask_each, discovery, together
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.answer import send_json
from proxy.fleet.member import Member
from proxy.lifecycle.commands import ADMISSION


class StatusEndpoint:
    """Processes that do not answer are listed with their error and left out of the sums."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest: a parameter.
            FleetIncomplete: the processes cannot be reached.
        """
        read_query(scope, ())
        sources = await discovery(self._member)
        processes: dict[int, dict[str, Any]] = {}
        # Of the two counts of requests the admission's wins: it is about inference alone.
        admissions = await ask_each(self._member, ADMISSION)
        for answer in (*await ask_each(self._member, "status"), *admissions):
            entry = processes.setdefault(answer.process, {"process": answer.process})
            entry.update(answer.result or {} if answer.error is None else {"error": answer.error})
        known = [answer for answer in admissions if answer.error is None]
        await send_json(
            send,
            200,
            {
                "version": __version__,
                **msgspec.structs.asdict(together(known)),
                "discovery": sources,
                "processes": [processes[index] for index in sorted(processes)],
            },
        )
