"""The failures that the proxy itself reports, with what the policies need to know about it.

Each error says whose fault it is (`source`), whether the request may be tried again (`retry`), its HTTP status and a
stable `code`. A complete HTTP answer of a worker is never one of these: it keeps its status and body.

    ProxyError
    ├── ClientFault                     the request is wrong                        source client
    │   ├── InvalidRequest      400     invalid_json, invalid_type, invalid_value, ...
    │   ├── NotFound            404     not_found, model_not_found
    │   ├── MethodNotAllowed    405     method_not_allowed
    │   ├── Unauthorized        401     invalid_api_key
    │   ├── BodyTooLarge        413     request_too_large
    │   ├── EncodedBody         415     unsupported_content_encoding
    │   ├── UnsupportedMediaType 415    unsupported_media_type (admin routes)
    │   ├── CrossSite           403     cross_site_request (admin routes, cluster storage)
    │   ├── StorageForbidden    403     invalid_storage_key (`proxy.endpoints.cluster_storage`)
    │   └── Refusal             400     invalid_http; 408 request_timeout; 413 request_too_large;
    │                                   431 headers_too_large; 505 (`proxy.downstream.refusal`)
    ├── ClientGone              (499)   the client left; nobody is answered         source client
    │   └── ClientUnreachable   (499)   ... noticed while something is sent to it
    ├── Overloaded              429     queue_full, queue_bytes_full, tokenizer_busy source proxy
    │   └── KeyLimitReached     429     key_limit                                   source client
    ├── QueueTimeout            503     queue_timeout: nothing has been done        source proxy
    ├── Paused                  503     new requests are held back                  source proxy
    ├── Aborted                 503     ended by an operator                        source proxy
    │   └── RequestAborted      410     aborted: this very request, by its id           source proxy
    ├── NotReady                503     not_ready, no_context_worker, no_generation_worker
    ├── WorkersBusy             429     all workers of a role refuse more load      source proxy
    ├── ShuttingDown            503     the drain's time is over                    source proxy
    ├── NotSupported            501     unsupported: neither proxy nor workers can; no_tokenizer
    ├── FleetIncomplete         502     of admin calls: not every process has done it (`proxy.endpoints.admin`)
    ├── StorageUnavailable  502     cluster_storage_unavailable (`proxy.endpoints.cluster_storage`)
    ├── PauseTimeout            504     of admin calls: something still runs (`proxy.endpoints.admin`)
    ├── InternalFault           500     a bug of ours                               source proxy
    └── LegFault                        one worker did not answer properly          source ctx, gen
        ├── ConnectFailed       502     worker_unreachable     nothing was sent
        ├── ConnectionBroken    502     worker_disconnected    the connection ended before the answer did
        ├── BrokenAnswer        502     bad_worker_response    not HTTP, `null`, or no hand-off
        └── LegTimeout          504     *_timeout, deadline_exceeded
"""

import math
from enum import Enum, auto

import msgspec


class Source(Enum):
    """Whose fault an error is."""

    CLIENT = "client"
    CONTEXT = "ctx"
    GENERATION = "gen"
    PROXY = "proxy"


class Retry(Enum):
    """When a request may be tried again after an error."""

    NEVER = auto()
    REUSED_ONLY = auto()
    """Only because the connection had been idle: the worker closed it just as the request was written."""
    UNSENT = auto()
    """The worker cannot have seen the whole request: no connection, or it ended before all was written."""
    BEFORE_HAND_OFF = auto()
    """As long as no context worker has answered: nothing that a client could notice has happened."""


class ProxyError(Exception):
    """Base of all errors that end in an answer of the proxy's own."""

    status: int = 500
    type: str = "server_error"
    default_code: str = "internal_error"
    retry: Retry = Retry.NEVER
    source: Source = Source.PROXY
    param: str | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class ClientFault(ProxyError):
    """The request is wrong; sending it again unchanged is useless."""

    type = "invalid_request_error"
    source = Source.CLIENT


class InvalidRequest(ClientFault):
    """The request's body is not what the route takes."""

    status = 400
    default_code = "invalid_value"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


class NotFound(ClientFault):
    """There is no such route."""

    status = 404
    default_code = "not_found"


class MethodNotAllowed(ClientFault):
    """The route exists but not for this method."""

    status = 405
    default_code = "method_not_allowed"

    def __init__(self, message: str, *, allow: bytes) -> None:
        super().__init__(message)
        self.headers = ((b"allow", allow),)


class Unauthorized(ClientFault):
    """No key, or none that is known here (RFC 6750 section 3 for the header)."""

    status = 401
    default_code = "invalid_api_key"
    headers = ((b"www-authenticate", b"Bearer"),)


class BodyTooLarge(ClientFault):
    """The body exceeds `max_body_bytes`."""

    status = 413
    default_code = "request_too_large"


class EncodedBody(ClientFault):
    """The body has a content-encoding; workers take none."""

    status = 415
    default_code = "unsupported_content_encoding"


class UnsupportedMediaType(ClientFault):
    """The body is not of the kind that the route takes."""

    status = 415
    default_code = "unsupported_media_type"


class CrossSite(ClientFault):
    """A page of another site asks in the name of whoever looks at it."""

    status = 403
    default_code = "cross_site_request"


class ClientGone(ProxyError):
    """The client closed its connection before the answer was complete."""

    status = 499
    default_code = "client_closed"
    source = Source.CLIENT


class ClientUnreachable(ClientGone, OSError):
    """What `send` raises for a client that has gone, whoever has called it (ASGI spec 2.4 wants an `OSError`)."""


_SOON = ((b"retry-after", b"1"),)


class Overloaded(ProxyError):
    """As many requests wait as may wait."""

    status = 429
    type = "rate_limit_error"
    default_code = "queue_full"
    headers = _SOON


class KeyLimitReached(Overloaded):
    """As many requests of one API key are here as may be."""

    default_code = "key_limit"
    source = Source.CLIENT


class QueueTimeout(ProxyError):
    """The request waited as long as it may; no worker has seen it, so it is safe to send it again."""

    status = 503
    type = "service_unavailable"
    default_code = "queue_timeout"
    headers = _SOON


class Paused(ProxyError):
    """An operator holds new requests back."""

    status = 503
    type = "service_unavailable"
    default_code = "paused"
    headers = _SOON


class Aborted(ProxyError):
    """An operator has ended the running requests."""

    status = 503
    type = "service_unavailable"
    default_code = "aborted"
    headers: tuple[tuple[bytes, bytes], ...] = _SOON


class RequestAborted(Aborted):
    """Somebody who may control the proxy has ended this very request: sending it again is not what they want."""

    status = 410
    type = "aborted"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class NotSupported(ProxyError):
    """The request is well-formed, but neither the proxy nor its workers can do what it asks."""

    status = 501
    type = "invalid_request_error"
    default_code = "unsupported"


class NotReady(ProxyError):
    """No worker of a role can take the request now."""

    status = 503
    type = "service_unavailable"
    default_code = "not_ready"
    headers = _SOON


class ShuttingDown(ProxyError):
    """The proxy is stopping and the time for running answers is over."""

    status = 503
    type = "service_unavailable"
    default_code = "shutting_down"


class WorkersBusy(ProxyError):
    """All workers of a role have refused more load a moment ago.

    Args:
        retry_after: seconds until the first of them may be asked again.
    """

    status = 429
    type = "rate_limit_error"
    default_code = "workers_busy"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.headers = ((b"retry-after", b"%d" % max(1, math.ceil(retry_after))),)


class InternalFault(ProxyError):
    """A bug of ours; details are in the log only."""

    default_code = "internal_error"


class LegFault(ProxyError):
    """A worker did not give a complete answer. The lifecycle sets `source`; messages never name a worker."""

    status = 502
    type = "upstream_error"


class ConnectFailed(LegFault):
    """No connection could be made: the request cannot have been seen."""

    default_code = "worker_unreachable"
    retry = Retry.UNSENT


class ConnectionBroken(LegFault):
    """The connection ended before the answer was complete."""

    default_code = "worker_disconnected"

    def __init__(self, message: str, *, retry: Retry) -> None:
        super().__init__(message)
        self.retry = retry


class BrokenAnswer(LegFault):
    """The worker's answer is not HTTP, not JSON, `null`, or lacks the hand-off."""

    default_code = "bad_worker_response"
    retry = Retry.BEFORE_HAND_OFF


class LegTimeout(LegFault):
    """A deadline of the leg has passed. Only a connection that took too long is tried again."""

    status = 504
    default_code = "worker_timeout"

    def __init__(self, message: str, *, code: str | None = None, retry: Retry = Retry.NEVER) -> None:
        super().__init__(message, code=code)
        self.retry = retry


class _Body(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str


def error_body(error: ProxyError) -> bytes:
    """The error in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""
    body = _Body(error.message, error.type, error.param, error.code)
    return msgspec.json.encode({"error": body})


def error_headers(error: ProxyError) -> list[tuple[bytes, bytes]]:
    """Headers of an error answer, without its length; `x-disagg-proxy-error` says whose fault it is."""
    return [
        (b"content-type", b"application/json"),
        (b"x-disagg-proxy-error", f"{error.source.value};{error.code}".encode()),
        *error.headers,
    ]
