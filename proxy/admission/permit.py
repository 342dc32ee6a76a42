"""A request that is inside: counted from its admission to the end of the `with` block, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.admission.admission import Admission
    from proxy.errors import ProxyError


class Permit:
    """See the module's docstring.

    Attributes:
        key: name of the API key, empty without one.
        in_context: its context leg has not been answered yet; `context_done` changes it.
        abort: ends the request with an error; set by whoever runs it, like `request_id`.
    """

    __slots__ = ("_admission", "abort", "in_context", "key", "request_id")

    def __init__(self, admission: Admission, key: str) -> None:
        self._admission = admission
        self.key = key
        self.in_context = True
        self.request_id = ""
        self.abort: Callable[[ProxyError], None] | None = None

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self)

    def context_done(self) -> None:
        """The context leg has been answered: its place is free for another request."""
        if self.in_context:
            self.in_context = False
            self._admission.context_left()

    def release(self) -> None:
        """The request has ended; further calls do nothing."""
        self._admission.leave(self)
