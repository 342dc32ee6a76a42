"""What can be asked of this process about its requests: commands that the whole fleet carries out (`proxy.fleet`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from proxy.errors import Aborted, RequestAborted

if TYPE_CHECKING:
    from proxy.lifecycle.service import Service

PAUSE, RESUME, ABORT, ADMISSION = "pause", "resume", "abort", "admission"
ABORT_REQUESTS = "abort_requests"
KEPT_PAUSE = "pause"
"""A process that starts later takes up the newest of `pause` and `resume`."""

_logger = logging.getLogger("proxy.admission")


class AdmissionStatus(msgspec.Struct, frozen=True):
    """What the command `admission` answers, for one process.

    Attributes:
        paused: nobody is admitted.
        in_flight: admitted requests that have not ended.
        in_context: those of them whose context leg has not been answered.
        queued, queued_bytes: requests that wait, and the bytes of their bodies.
        orphans: generation legs that are sent for clients who left.
        refused: requests refused since the start, by code.
    """

    paused: bool
    in_flight: int
    in_context: int
    queued: int
    queued_bytes: int
    orphans: int
    refused: dict[str, int]

    @property
    def idle(self) -> bool:
        """Nothing of this process runs on any worker."""
        return not self.in_flight and not self.orphans


def register_commands(service: Service) -> None:
    """Add the commands to those of the process."""
    commands = _Commands(service)
    for name, handler in (
        (PAUSE, commands.pause),
        (RESUME, commands.resume),
        (ABORT, commands.abort),
        (ABORT_REQUESTS, commands.abort_requests),
        (ADMISSION, commands.admission),
    ):
        service.member.commands.register(name, handler)


class _Commands:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def pause(self, _arguments: Any) -> dict[str, Any]:
        self._service.admission.pause()
        _logger.info("paused")
        return self._status()

    async def resume(self, _arguments: Any) -> dict[str, Any]:
        self._service.admission.resume()
        _logger.info("resumed")
        return self._status()

    async def abort(self, _arguments: Any) -> dict[str, Any]:
        ended = self._service.admission.abort_running(
            lambda: Aborted("the request was ended by an operator of the proxy")
        )
        _logger.warning("ended %d running requests as asked", ended)
        return self._status()

    async def abort_requests(self, arguments: Any) -> int:
        """`arguments`: the ids of the requests, None for all that run or wait. Answers how many were ended."""
        ids = None if arguments is None else frozenset(arguments)
        ended = self._service.admission.abort_requests(
            ids, lambda: RequestAborted("the request was aborted as asked")
        )
        _logger.info("aborted %d requests as asked", ended)
        return ended

    async def admission(self, _arguments: Any) -> dict[str, Any]:
        return self._status()

    def _status(self) -> dict[str, Any]:
        admission = self._service.admission
        return msgspec.structs.asdict(
            AdmissionStatus(
                paused=admission.paused,
                in_flight=admission.in_flight,
                in_context=admission.in_context,
                queued=admission.queued,
                queued_bytes=admission.queued_bytes,
                orphans=self._service.orphans.running,
                refused=dict(admission.refused),
            )
        )
