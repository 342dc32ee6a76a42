"""How a request of an inference route becomes a passage, whether one leg serves it or two."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from starlette.types import Scope

from proxy.lifecycle.client import Client
from proxy.lifecycle.deadline import read_deadline
from proxy.lifecycle.headers import Headers, to_workers
from proxy.lifecycle.passage import Passage
from proxy.lifecycle.priority import DEFAULT_PRIORITY, read_priority
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.middleware.cors import RESPONSE_HEADERS
from proxy.placement.policy import NO_PLACEMENT, Placement
from proxy.wire.fields.policy import header_value
from proxy.wire.request import InferenceRequest


class Entrance:
    """That of one route.

    Args:
        service: what all requests share.
        path: of the route, here and on the workers.
        forwarded: names of headers that pass to the workers beside the usual ones and `forward_headers`.
    """

    def __init__(self, service: Service, path: str, *, forwarded: Collection[bytes] = ()) -> None:
        self._service = service
        self._proxy = service.settings.proxy
        self._path = path.encode()
        self._forwarded = frozenset((*forwarded, *(name.encode() for name in self._proxy.forward_headers)))

    def passage(
        self,
        scope: Scope,
        request: InferenceRequest,
        client: Client,
        *,
        priority: msgspec.Raw | None = None,
        placement: Placement = NO_PLACEMENT,
    ) -> Passage:
        """Open the passage of a request, of which the record has been filled in as far as its body goes.

        Args:
            scope: ASGI's.
            request, client, placement: see `Passage`.
            priority: the member of the body, if there is one.

        Raises:
            InvalidRequest, InvalidField: a header or the priority cannot be read.
        """
        record, proxy = scope[RECORD], self._proxy
        headers: Headers = scope["headers"]
        query: bytes = scope["query_string"]
        response_headers: Headers = [(b"x-request-id", record.request_id.encode())]
        if RESPONSE_HEADERS in scope:
            response_headers += scope[RESPONSE_HEADERS]
        if record.dropped:
            response_headers.append((b"x-disagg-proxy-dropped", header_value(record.dropped)))
        return Passage(
            self._service,
            request,
            client,
            record,
            target=self._path + b"?" + query if query else self._path,
            headers=to_workers(
                headers,
                record.request_id,
                forwarded=self._forwarded,
                own=self._service.registry.access.key_line,
            ),
            response_headers=response_headers,
            total=read_deadline(headers, proxy.timeout_total),
            priority=DEFAULT_PRIORITY if proxy.queue_order == "fifo" else read_priority(headers, priority),
            placement=placement,
        )
