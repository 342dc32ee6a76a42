"""The server of one process of a fleet (or of the only one): what others can ask of it, and what it tells them."""

from __future__ import annotations

import os
import socket
from time import monotonic
from typing import TYPE_CHECKING, Any

import uvicorn

from proxy.downstream.server import ProxyServer
from proxy.fleet.member import Member
from proxy.fleet.memory import resident_bytes

if TYPE_CHECKING:
    from proxy.app import Application


class MemberServer(ProxyServer):
    """Registers the commands `status`, `drain` and `hurry`; ends when the supervisor does.

    Args:
        config, app, grace, timeout: see `ProxyServer`.
        member: the process's place in its fleet.
    """

    def __init__(
        self, config: uvicorn.Config, app: Application, member: Member, *, grace: float, timeout: float
    ) -> None:
        super().__init__(config, app, grace=grace, timeout=timeout)
        self._member = member
        self._started_at = monotonic()
        app.traffic = lambda: (len(self.server_state.tasks), len(self.server_state.connections))
        member.orphaned = self.drain
        member.commands.register("status", self._status)
        member.commands.register("drain", self._drain_command)
        member.commands.register("hurry", self._hurry_command)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the fleet's sockets, or as configured."""
        await super().serve(sockets if sockets is not None else self._member.listeners)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        await super().startup(sockets)
        self._member.serving()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn when the grace is over."""
        self._member.closing()
        await super().shutdown(sockets)

    async def _status(self, arguments: Any) -> dict[str, Any]:
        service = self._app.service
        return {
            "process": self._member.index,
            "pid": os.getpid(),
            "uptime_seconds": round(monotonic() - self._started_at, 3),
            "ready": service is not None and service.ready,
            "draining": self.draining,
            "in_flight": len(self.server_state.tasks),
            "connections": len(self.server_state.connections),
            "rss_bytes": resident_bytes(),
        }

    async def _drain_command(self, arguments: Any) -> None:
        self.drain()

    async def _hurry_command(self, arguments: Any) -> None:
        self.hurry()
