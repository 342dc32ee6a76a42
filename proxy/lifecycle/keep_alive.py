"""Comments for a streaming client that waits, so that nobody on the way takes the silence for a dead connection.

The price is that the status has been sent, 200, before there is an answer: errors then come as an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from proxy.errors import ClientGone, ProxyError, ShuttingDown, error_body
from proxy.wire import sse

if TYPE_CHECKING:
    from proxy.lifecycle.client import Client, Headers
    from proxy.lifecycle.record import RequestRecord


class _Comments:
    """One comment each `seconds`, from the first silent interval to the first byte of the answer."""

    def __init__(
        self, client: Client, loop: asyncio.AbstractEventLoop, seconds: float, headers: Headers
    ) -> None:
        self._client = client
        self._loop = loop
        self._seconds = seconds
        self._headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *headers]
        self._timer = loop.call_later(seconds, self._fired)

    def _fired(self) -> None:
        if self._client.comment(list(self._headers)):
            self._timer = self._loop.call_later(self._seconds, self._fired)

    def close(self) -> None:
        self._timer.cancel()


async def kept_alive(
    request: Coroutine[Any, Any, None],
    client: Client,
    record: RequestRecord,
    *,
    seconds: float,
    headers: Headers,
) -> None:
    """Serve a streaming request to its end and send comments while its client waits.

    Args:
        request: serves it.
        client, record: of the request.
        seconds: between two comments.
        headers: of the answer, if it has to be begun for a comment.

    Raises:
        ProxyError: nothing has been sent to the client; the caller answers.
    """
    comments = _Comments(client, asyncio.get_running_loop(), seconds, headers)
    try:
        await request
    except ProxyError as error:
        if not client.begun or isinstance(error, ClientGone):
            raise
        record.error = error
        record.status = client.status
        await client.break_off(sse.event(error_body(error)))
    except asyncio.CancelledError:
        if client.begun:
            await client.break_off(sse.event(error_body(ShuttingDown("the proxy is stopping"))))
        raise
    finally:
        comments.close()
