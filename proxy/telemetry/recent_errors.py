"""The last requests that failed, for people who look at the proxy: whose fault, where, when. No contents."""

from __future__ import annotations

from collections import deque
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from starlette.types import Scope

    from proxy.lifecycle.record import RequestRecord

MOST = 50
RECENT_ERRORS = "recent_errors"
"""The command that tells them."""

_LEFT = 499


class RecentError(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        time: when it ended, seconds since the epoch.
        status: of the answer; after a 200 the stream broke off.
        error: as in `x-disagg-proxy-error`; the source alone for an answer that came from a worker as it is.
        worker: who ran its last leg, or empty.
    """

    time: float
    request_id: str
    route: str
    status: int
    error: str
    worker: str


class RecentErrors:
    """The last `MOST` of this process. Clients who left are no errors."""

    def __init__(self) -> None:
        self._errors: deque[RecentError] = deque(maxlen=MOST)

    def settle(self, record: RequestRecord, scope: Scope) -> None:
        """Note a finished request if it failed."""
        error = record.error
        if (error is None and record.status < 400) or record.status == _LEFT:
            return
        worker = record.generation_worker or record.context_worker
        self._errors.append(
            RecentError(
                time=round(time(), 3),
                request_id=record.request_id,
                route=record.route,
                status=record.status,
                error=record.answered_by if error is None else f"{error.source.value};{error.code}",
                worker="" if worker is None else worker.address.text,
            )
        )

    async def tell(self, _arguments: Any) -> Any:
        """Carry out the command."""
        return msgspec.to_builtins(list(self._errors))
