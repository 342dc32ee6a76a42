"""A request that waits for its admission."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from proxy.admission.admission import Admission
    from proxy.admission.permit import Permit
    from proxy.errors import ProxyError


class Waiter:
    """Waits in the queue; can be aborted like an exchange with a worker, so the request's watch guards it.

    Attributes:
        size: of the body that is held meanwhile, bytes.
        priority: 0 to 1, higher first.
        key: name of the API key, empty without one.
        request_id: of the request.
        abort_admitted: ends it with an error after its admission.
    """

    __slots__ = ("_admission", "_future", "abort_admitted", "key", "priority", "request_id", "size")

    def __init__(
        self,
        admission: Admission,
        future: asyncio.Future[Permit],
        *,
        size: int,
        priority: float,
        key: str,
        request_id: str = "",
        abort_admitted: Callable[[ProxyError], None] | None = None,
    ) -> None:
        self._admission = admission
        self._future = future
        self.size = size
        self.priority = priority
        self.key = key
        self.request_id = request_id
        self.abort_admitted = abort_admitted

    async def permit(self) -> Permit:
        """Wait for the turn; whatever interrupts it, the place in the queue or the permit is given back.

        Raises:
            ProxyError: what `abort` was called with.
        """
        try:
            return await self._future
        except BaseException:
            self.withdraw()
            raise

    def abort(self, _exchange: int, error: ProxyError) -> None:
        """Leave the queue with an error; does nothing after the admission."""
        if self._admission.withdraw(self) and not self._future.done():
            self._future.set_exception(error)

    def withdraw(self) -> None:
        """Leave the queue, or give back the permit that came at the same moment."""
        self._admission.withdraw(self)
        future = self._future
        if future.done() and not future.cancelled() and future.exception() is None:
            future.result().release()

    def admit(self, permit: Permit) -> bool:
        """Called by the admission at the waiter's turn; False when nobody waits for it any more."""
        if self._future.done():  # its task was cancelled and has not run yet
            return False
        self._future.set_result(permit)
        return True
