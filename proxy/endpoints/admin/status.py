"""GET /admin/status: the fleet in numbers, its workers, its processes, and the last errors."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from proxy import __version__
from proxy.endpoints.admin.figures import Figures
from proxy.endpoints.admin.fleet import ask_each, discovery, together
from proxy.endpoints.admin.query import read_query
from proxy.endpoints.answer import send_json
from proxy.fleet.commands import MemberAnswer
from proxy.lifecycle.commands import ADMISSION
from proxy.lifecycle.service import Service
from proxy.telemetry.fleet_view import FleetView
from proxy.telemetry.recent_errors import MOST, RECENT_ERRORS


class StatusEndpoint:
    """Processes that do not answer are listed with their error and left out of the sums; what other processes tell of
    workers may be a second old."""

    def __init__(self, service: Service) -> None:
        self._member = service.member
        self._operator = service.registry.operator
        self._view = FleetView(service.member.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest: a parameter.
            FleetIncomplete: the processes cannot be reached.
        """
        read_query(scope, ())
        member = self._member
        sources = await discovery(member)
        admissions = await ask_each(member, ADMISSION)
        states = await ask_each(member, "status")
        errors = await ask_each(member, RECENT_ERRORS)
        figures = Figures(self._view)
        await figures.read()
        held = {address.text for address in self._operator.draining}
        for worker in figures.workers:
            worker.held = worker.worker in held
        known = [answer for answer in admissions if answer.error is None]
        await send_json(
            send,
            200,
            {
                "version": __version__,
                **msgspec.structs.asdict(together(known)),
                "discovery": sources,
                "requests": figures.requests,
                "overhead": figures.overhead,
                "first_byte": figures.first_byte,
                # Of the two counts of requests the admission's wins: it is about inference alone.
                "processes": _processes((*states, *admissions), figures),
                "workers": figures.workers,
                "recent_errors": _newest(errors),
            },
        )


def _processes(answers: tuple[MemberAnswer, ...], figures: Figures) -> list[dict[str, Any]]:
    processes: dict[int, dict[str, Any]] = {}
    for answer in answers:
        entry = processes.setdefault(answer.process, {"process": answer.process})
        entry.update(answer.result or {} if answer.error is None else {"error": answer.error})
    for index, entry in processes.items():
        entry["restarts"] = figures.restarts.get(str(index), 0)
        entry["loop_lag_seconds"] = figures.loop_lag.get(str(index))
    return [processes[index] for index in sorted(processes)]


def _newest(answers: list[MemberAnswer]) -> list[dict[str, Any]]:
    """The last errors of all processes, the newest first."""
    every = [{"process": answer.process, **error} for answer in answers for error in answer.result or ()]
    return sorted(every, key=itemgetter("time"), reverse=True)[:MOST]
