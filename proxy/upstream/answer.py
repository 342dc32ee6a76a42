"""What becomes of a worker's answer: it is collected (`Answer`) or goes on as it comes (`Sink`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proxy.errors import ProxyError
    from proxy.upstream.head import ResponseHead


class Sink(Protocol):
    """Where the body of a relayed answer goes. All calls come from the event loop and return at once.

    Attributes:
        framed: takes chunk frames, not plain payload (see `proxy.wire.chunks`).
    """

    framed: bool

    def write(self, data: bytes) -> None:
        """Take one piece."""

    def end(self, data: bytes) -> None:
        """Take the last piece (perhaps empty); the answer is complete."""

    def broken(self, error: ProxyError) -> None:
        """The answer ends here, incomplete."""


class Answer:
    """A complete answer: head and body."""

    __slots__ = ("body", "head")

    def __init__(self, head: ResponseHead, body: bytes) -> None:
        self.head = head
        self.body = body
