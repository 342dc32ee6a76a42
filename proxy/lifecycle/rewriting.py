"""Between a worker's stream and the client: the sink of a request whose answer has to be rewritten.

It stands in front of whatever sink the client has, so it serves our own server and any other ASGI server alike, and
leaves back-pressure, the end, and the client's leave to that sink. Whole events go on in the call in which their last
byte arrived. The client never gets a part of one, so that an error event can always follow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.errors import BrokenAnswer, InternalFault
from proxy.wire.chunks import chunk
from proxy.wire.errors import WireError

if TYPE_CHECKING:
    from proxy.errors import ProxyError
    from proxy.upstream.connection import Sink
    from proxy.wire.rewriting import Rewriters

_logger = logging.getLogger("proxy.lifecycle")


class RewritingSink:
    """See the module's docstring.

    Args:
        sink: the client's.
        rewriters: of the request.
        fail: ends the exchange with the worker; `broken` is called in return.

    Attributes:
        framed: pieces are payload.
    """

    __slots__ = ("_error", "_fail", "_rewriters", "_sink", "framed")

    def __init__(self, sink: Sink, rewriters: Rewriters, fail: Callable[[ProxyError], None]) -> None:
        self._sink = sink
        self._rewriters = rewriters
        self._fail = fail
        self._error: ProxyError | None = None
        self.framed = False

    def write(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        if self._error is not None:
            return  # one of the other pieces of one read
        try:
            rewritten = self._rewriters.feed(data)
        except Exception as error:
            self._error = _fault(error)
            self._fail(self._error)
        else:
            if rewritten:
                self._sink.write(self._piece(rewritten))

    def end(self, data: bytes) -> None:
        """See `proxy.upstream.connection.Sink`."""
        try:
            rewritten = self._rewriters.feed(data) + self._rewriters.finish()
        except Exception as error:
            self._sink.broken(_fault(error))  # the exchange with the worker is over
        else:
            self._sink.end(self._piece(rewritten) if rewritten else b"")

    def broken(self, error: ProxyError) -> None:
        """See `proxy.upstream.connection.Sink`. The beginning of an event, if one is held, is of no use to anybody."""
        self._sink.broken(error)

    def _piece(self, data: bytes) -> bytes:
        return chunk(data) if self._sink.framed else data


def _fault(error: Exception) -> ProxyError:
    if isinstance(error, WireError):
        return BrokenAnswer(str(error))
    _logger.error("exception in a rewriter", exc_info=error)
    return InternalFault("the proxy failed")
