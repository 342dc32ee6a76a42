"""As much of the Kubernetes API as EndpointSlices and the labels of nodes need, as a pod's service account."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.workers.discovery.endpoint_slices import EndpointSlice, EndpointSliceList, Metadata
from proxy.workers.discovery.source import SourceLost

_SERVICE_LABEL = "kubernetes.io/service-name"
_CONNECT_SECONDS = 5.0
_LIST_SECONDS = 30.0
# After the time at which the server was asked to end a watch.
_LATE_SECONDS = 10.0
# A slice has at most 1,000 endpoints of some hundred bytes.
_LONGEST_LINE = 16 * 1024 * 1024
# A host that has died sends nothing: noticed within half a minute.
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Expired(Exception):
    """The server does not know any more what has changed since a version (410 Gone): everything is to be read again."""


class Event(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED or DELETED with a slice, BOOKMARK with a version, ERROR with a status."""

    type: str
    object: msgspec.Raw


class Status(msgspec.Struct, frozen=True):
    """How the API says that something is wrong."""

    code: int = 0
    message: str = ""


class Bookmark(msgspec.Struct, frozen=True):
    """An object of which only the version counts."""

    metadata: Metadata


class Labelled(msgspec.Struct, frozen=True):
    """The part of an object's metadata that it is labelled with."""

    labels: dict[str, str] | None = None


class Node(msgspec.Struct, frozen=True):
    """A node, of which only the labels count."""

    metadata: Labelled


_list_decoder = msgspec.json.Decoder(EndpointSliceList)
_event_decoder = msgspec.json.Decoder(Event)
_node_decoder = msgspec.json.Decoder(Node)
_slice_decoder = msgspec.json.Decoder(EndpointSlice)
_bookmark_decoder = msgspec.json.Decoder(Bookmark)


class KubernetesApi:
    """The slices of one Service; `async with` frames its connections.

    Args:
        entry: Service and server.
        environ: of the process.

    Raises:
        SourceLost: the server or the credentials are not known.
    """

    def __init__(self, entry: KubernetesEntry, environ: Mapping[str, str] = os.environ) -> None:
        self._service = entry.service
        self._credentials = Path(entry.credentials)
        namespace = entry.namespace or self._read("namespace")
        url = entry.api or _in_cluster(environ)
        self._secure = url.startswith("https:")
        self._server = url.rstrip("/")
        self._url = f"{self._server}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        transport = httpx.AsyncHTTPTransport(
            verify=self._tls(), trust_env=False, socket_options=list(_KEEP_ALIVE)
        )
        timeout = httpx.Timeout(_LIST_SECONDS, connect=_CONNECT_SECONDS)
        self._client = httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)

    async def __aenter__(self) -> KubernetesApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def list_slices(self) -> EndpointSliceList:
        """All of them.

        Raises:
            SourceLost: no usable answer in time.
        """
        content = await self._get(self._url, self._query())
        try:
            return _list_decoder.decode(content)
        except msgspec.DecodeError as error:
            raise SourceLost(f"the list of EndpointSlices makes no sense: {error}") from None

    async def node_labels(self, node: str) -> Mapping[str, str]:
        """The labels of a node.

        Raises:
            SourceLost: no usable answer in time; to read nodes needs a permission of its own.
        """
        content = await self._get(f"{self._server}/api/v1/nodes/{quote(node, safe='')}", {})
        try:
            return _node_decoder.decode(content).metadata.labels or {}
        except msgspec.DecodeError as error:
            raise SourceLost(f"the node {node} makes no sense: {error}") from None

    async def _get(self, url: str, query: Mapping[str, str]) -> bytes:
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                answer = await self._client.get(url, params=query, headers=self._headers())
        except (TimeoutError, httpx.HTTPError) as error:
            raise SourceLost(_sentence(error)) from None
        if answer.status_code != httpx.codes.OK:
            raise SourceLost(_problem(answer.status_code, answer.content))
        return answer.content

    async def watch(self, version: str, seconds: float) -> AsyncGenerator[list[Event], None]:
        """What changes after a version, as many events at once as have arrived, until the server ends it in order.

        Args:
            version: of a list or an event.
            seconds: when the server is asked to end.

        Raises:
            Expired: the version is too old.
            SourceLost: the connection broke, or there was no usable answer.
        """
        whole = max(1, round(seconds))
        query = self._query(
            watch="true", allowWatchBookmarks="true", resourceVersion=version, timeoutSeconds=str(whole)
        )
        timeout = httpx.Timeout(whole + _LATE_SECONDS, connect=_CONNECT_SECONDS)
        request = self._client.build_request(
            "GET", self._url, params=query, headers=self._headers(), timeout=timeout
        )
        try:
            answer = await self._client.send(request, stream=True)
            try:
                if answer.status_code != httpx.codes.OK:
                    _refuse(answer.status_code, await answer.aread())
                async with aclosing(_lines(answer)) as batches:
                    async for lines in batches:
                        yield [_event_decoder.decode(line) for line in lines]
            finally:
                await answer.aclose()
        except httpx.HTTPError as error:
            raise SourceLost(_sentence(error)) from None
        except msgspec.DecodeError as error:
            raise SourceLost(f"an event of the watch makes no sense: {error}") from None

    def _query(self, **more: str) -> dict[str, str]:
        return {"labelSelector": f"{_SERVICE_LABEL}={self._service}", **more}

    def _headers(self) -> dict[str, str]:
        """The token is read for each request: it is renewed about every hour. It is never sent in the clear."""
        headers = {"accept": "application/json"}
        if self._secure:
            headers["authorization"] = f"Bearer {self._read('token')}"
        return headers

    def _read(self, name: str) -> str:
        try:
            return (self._credentials / name).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SourceLost(f"{self._credentials / name}: {error}") from None

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._secure:
            return False
        path = self._credentials / "ca.crt"
        try:
            return ssl.create_default_context(cafile=str(path))
        except OSError as error:  # ssl.SSLError is one
            raise SourceLost(f"{path}: {error}") from None


def read_event(event: Event) -> tuple[str, EndpointSlice | None]:
    """The version after an event, and the slice that it is about; None for a bookmark.

    Raises:
        Expired: the server could not go on from the version.
        SourceLost: it says that something else is wrong, or makes no sense.
    """
    try:
        if event.type == "BOOKMARK":
            return _bookmark_decoder.decode(event.object).metadata.resource_version, None
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            found = _slice_decoder.decode(event.object)
            return found.metadata.resource_version, found
    except msgspec.DecodeError as error:
        raise SourceLost(f"an event of the watch makes no sense: {error}") from None
    _refuse(0, bytes(event.object))
    raise AssertionError("not reached")


async def _lines(answer: httpx.Response) -> AsyncGenerator[list[bytes], None]:
    """Complete lines, as many as have arrived. JSON may hold what `str.splitlines` would split at."""
    unread: list[bytes] = []
    size = 0
    async for piece in answer.aiter_bytes():
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = b"".join(unread) + lines[0]
            unread, size = [], 0
        unread.append(rest)
        size += len(rest)
        if size > _LONGEST_LINE:
            raise SourceLost("an event of the watch is too long")
        complete = [line for line in lines if line.strip()]
        if complete:
            yield complete
    if size:
        raise SourceLost("the watch broke off")


def _in_cluster(environ: Mapping[str, str]) -> str:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise SourceLost(
            "the API server is not known: this is no pod (KUBERNETES_SERVICE_HOST), and api is not set"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _refuse(code: int, body: bytes) -> Any:
    if _status(body).code == httpx.codes.GONE or code == httpx.codes.GONE:
        raise Expired
    raise SourceLost(_problem(code, body))


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        return Status()


def _problem(code: int, body: bytes) -> str:
    status = _status(body)
    return f"the API server answers {status.code or code} {status.message}".rstrip()


def _sentence(error: Exception) -> str:
    return f"the API server cannot be read: {type(error).__name__} {error}".rstrip()
