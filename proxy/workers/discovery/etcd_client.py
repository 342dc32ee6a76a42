"""A client for etcd's v3 JSON gateway (documented as "gRPC gateway"): keys and values are base64, numbers are strings.

The Python clients for etcd need gRPC and block; this one is a few calls over HTTP.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import httpx
import msgspec

# For one call to one endpoint. A member that is cut off from its cluster does not answer at all.
_CALL_SECONDS = 3.0
_CONNECT_SECONDS = 1.0
# gRPC status code in the gateway's errors (google.golang.org/grpc/codes).
_NOT_FOUND = 5

_T = TypeVar("_T")


class EtcdError(Exception):
    """etcd cannot be reached, or does not do what it is asked for; the text says why and where."""


class LeaseGone(EtcdError):
    """The lease has run out or never existed."""


class WatchLost(EtcdError):
    """The stream of changes ended: read the keys again. With `compacted` nothing is wrong with etcd."""

    def __init__(self, message: str, *, compacted: bool = False) -> None:
        super().__init__(message)
        self.compacted = compacted


class EtcdAccess(msgspec.Struct, frozen=True):
    """Where etcd is and how to get in.

    Attributes:
        endpoints: `http(s)://host:port` of each member.
        tls: for https endpoints.
        user, password: etcd's own; None without authentication.
    """

    endpoints: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """All keys below a prefix at one moment.

    Attributes:
        values: by key.
        revision: of the moment; a watch goes on from the next one.
    """

    values: dict[str, str]
    revision: int


class Change(msgspec.Struct, frozen=True):
    """A key was put, or is gone (`value` None)."""

    key: str
    value: str | None


class _Header(msgspec.Struct):
    revision: int = 0


class _KeyValue(msgspec.Struct):
    key: str
    value: str = ""


class _Event(msgspec.Struct):
    kv: _KeyValue
    type: str = "PUT"


class _Range(msgspec.Struct):
    header: _Header
    kvs: list[_KeyValue] = []


class _WatchResult(msgspec.Struct):
    events: list[_Event] = []
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""


class _WatchLine(msgspec.Struct):
    result: _WatchResult | None = None
    error: Any = None


class _Lease(msgspec.Struct):
    ID: int = 0
    TTL: int = 0


class _KeepAlive(msgspec.Struct):
    result: _Lease


class _Outcome(msgspec.Struct):
    succeeded: bool = False


class _Token(msgspec.Struct):
    token: str


class _Failure(msgspec.Struct):
    message: str = ""
    error: Any = ""
    code: int = 0


class EtcdClient:
    """Asks one member at a time and the next one when it fails. Close it with `close`.

    Args:
        access: where and who.
        first: the number of the endpoint to begin with.

    Attributes:
        member: the number of the endpoint that is asked at present.
    """

    def __init__(self, access: EtcdAccess, *, first: int = 0) -> None:
        self._access = access
        self.member = first
        self._token: str | None = None
        self._http = httpx.AsyncClient(
            # Without TLS nothing is loaded: the system's certificates take tens of milliseconds.
            verify=access.tls or False,
            timeout=httpx.Timeout(_CALL_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
        )

    @property
    def endpoint(self) -> str:
        """The url of this member."""
        return self._access.endpoints[self.member]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # Keys

    async def read(self, prefix: str, *, keys_only: bool = False) -> Snapshot:
        """All keys that begin like this.

        Raises:
            EtcdError: no member answers, or what answers is no etcd.
        """
        body = {**_below(prefix), "keys_only": keys_only}
        found = await self._call("/v3/kv/range", body, _Range)
        return Snapshot({_text(each.key): _text(each.value) for each in found.kvs}, found.header.revision)

    async def create(self, key: str, value: str, *, lease: int = 0) -> bool:
        """Put a key that does not exist; False when it does.

        Raises:
            LeaseGone, EtcdError.
        """
        encoded = _base64(key)
        body = {
            "compare": [{"key": encoded, "target": "CREATE", "create_revision": "0"}],
            "success": [{"request_put": {"key": encoded, "value": _base64(value), "lease": str(lease)}}],
        }
        return (await self._call("/v3/kv/txn", body, _Outcome)).succeeded

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[list[Change], None]:
        """The changes below a prefix, beginning with those that made `revision`. One empty list comes at once.

        Never ends by itself.

        Raises:
            WatchLost: the stream ended; the next member will be asked.
            EtcdError: the member does not let us in, or is no etcd.
        """
        request = {"create_request": {**_below(prefix), "start_revision": str(revision)}}
        try:
            async with self._http.stream(
                "POST",
                f"{self.endpoint}/v3/watch",
                content=msgspec.json.encode(request),
                headers=await self._headers(),
                timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            ) as answer:
                if answer.status_code != httpx.codes.OK:
                    self._token = None
                    raise WatchLost(f"{self.endpoint}: {_reason(await answer.aread())}")
                async for line in answer.aiter_lines():
                    yield _changes(line)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            self._next_member()
            raise WatchLost(f"{self.endpoint}: {_describe(error)}") from None
        self._next_member()
        raise WatchLost(f"{self.endpoint} ended the watch")

    # Leases

    async def grant(self, seconds: int) -> int:
        """A new lease that runs out after so many seconds; etcd may lengthen very short ones.

        Raises:
            EtcdError: no member answers.
        """
        return (await self._call("/v3/lease/grant", {"TTL": str(seconds)}, _Lease)).ID

    async def keep_alive(self, lease: int) -> None:
        """Let a lease begin anew.

        Raises:
            LeaseGone: it has run out.
            EtcdError: no member answers.
        """
        answer = await self._call("/v3/lease/keepalive", {"ID": str(lease)}, _KeepAlive)
        if answer.result.TTL <= 0:
            raise LeaseGone("the lease has run out")

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys.

        Raises:
            LeaseGone, EtcdError.
        """
        await self._call("/v3/lease/revoke", {"ID": str(lease)}, _Outcome)

    # Calls

    async def _call(self, path: str, body: Any, kind: type[_T]) -> _T:
        failures = []
        for _ in self._access.endpoints:
            try:
                return await self._ask(path, body, kind)
            except LeaseGone:
                raise
            except EtcdError as error:
                failures.append(str(error))
                self._next_member()
        raise EtcdError("; ".join(failures))

    async def _ask(self, path: str, body: Any, kind: type[_T]) -> _T:
        content = msgspec.json.encode(body)
        try:
            answer = await self._post(path, content)
            if answer.status_code == httpx.codes.UNAUTHORIZED and self._access.user is not None:
                # Tokens run out, and etcd forgets them when it restarts.
                self._token = None
                answer = await self._post(path, content)
            if answer.status_code == httpx.codes.OK:
                return msgspec.json.decode(answer.content, type=kind, strict=False)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise EtcdError(f"{self.endpoint}: {_describe(error)}") from None
        failure = LeaseGone if _code(answer.content) == _NOT_FOUND else EtcdError
        raise failure(f"{self.endpoint}: {_reason(answer.content)}")

    async def _post(self, path: str, content: bytes) -> httpx.Response:
        return await self._http.post(f"{self.endpoint}{path}", content=content, headers=await self._headers())

    async def _headers(self) -> dict[str, str]:
        user = self._access.user
        if user is None:
            return {}
        if self._token is None:
            answer = await self._http.post(
                f"{self.endpoint}/v3/auth/authenticate",
                content=msgspec.json.encode({"name": user, "password": self._access.password}),
            )
            if answer.status_code != httpx.codes.OK:
                raise EtcdError(f"{self.endpoint} does not let {user} in: {_reason(answer.content)}")
            self._token = msgspec.json.decode(answer.content, type=_Token).token
        return {"authorization": self._token}

    def _next_member(self) -> None:
        self.member = (self.member + 1) % len(self._access.endpoints)
        self._token = None


def _below(prefix: str) -> dict[str, str]:
    """The range of the keys that begin with `prefix`, as etcd wants it: to the first key that begins otherwise."""
    begin = prefix.encode()
    return {
        "key": _base64(prefix),
        "range_end": base64.b64encode(begin[:-1] + bytes([begin[-1] + 1])).decode(),
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode("utf-8", "replace")
    except ValueError:
        raise EtcdError(f"not base64: {encoded[:80]!r}") from None


def _changes(line: str) -> list[Change]:
    """Read one line of a watch.

    Raises:
        WatchLost: it says that there will be no more.
        EtcdError: a key or value is not base64.
        msgspec.DecodeError: it is something else.
    """
    read = msgspec.json.decode(line, type=_WatchLine, strict=False)
    if read.result is None:
        raise WatchLost(f"etcd ended the watch: {read.error}")
    if read.result.canceled:
        reason = read.result.cancel_reason or f"compacted at {read.result.compact_revision}"
        raise WatchLost(f"etcd ended the watch: {reason}", compacted=bool(read.result.compact_revision))
    return [
        Change(_text(event.kv.key), None if event.type == "DELETE" else _text(event.kv.value))
        for event in read.result.events
    ]


def _code(content: bytes) -> int:
    return _failure(content).code


def _reason(content: bytes) -> str:
    failure = _failure(content)
    return failure.message or str(failure.error) or "no reason given"


def _failure(content: bytes) -> _Failure:
    try:
        return msgspec.json.decode(content, type=_Failure, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Failure(message=content[:200].decode("utf-8", "replace"))


def _describe(error: Exception) -> str:
    # Time-outs of httpx have no text.
    return str(error) or type(error).__name__
