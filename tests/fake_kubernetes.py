"""As much of a Kubernetes API server as watching EndpointSlices needs, on a socket of the test's event loop."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SERVICE_LABEL = "kubernetes.io/service-name"


def endpoint(uid: str, *addresses: str, **fields: Any) -> dict[str, Any]:
    """A ready one; ``ready``, ``serving``, ``terminating`` are conditions."""
    conditions = {
        name: fields.pop(name) for name in ("ready", "serving", "terminating") if name in fields
    } or {"ready": True}
    target = {"kind": "Pod", "name": f"pod-{uid}", "uid": uid}
    return {"addresses": list(addresses), "conditions": conditions, "targetRef": target, **fields}


def endpoint_slice(name: str, *endpoints: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A slice of the Service ``ctx``, port ``http`` 8001; ``service``, ``ports``, ``addressType`` change that."""
    return {
        "metadata": {"name": name, "labels": {SERVICE_LABEL: fields.pop("service", "ctx")}},
        "addressType": "IPv4",
        "endpoints": list(endpoints) or None,
        "ports": [{"name": "http", "port": 8001, "protocol": "TCP"}],
        **fields,
    }


class FakeKubernetes:
    """`put` and `delete` change slices, and those who watch hear of it.

    ``token``: who does not send it gets a 401. ``tls``: serve HTTPS. ``piece_bytes``: events dribble in such pieces.
    ``broken``: lists and watches get a 500. ``mute``: nobody gets any answer. ``nodes``: their labels; others may not
    be read, and with ``slow_nodes`` none answers.
    """

    def __init__(self, *, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.token = token
        self.broken = self.mute = self.slow_nodes = False
        self.piece_bytes = 0
        self.nodes: dict[str, dict[str, str] | None] = {}
        self.node_lookups: list[str] = []
        self.lists = self.watches = self.unauthorized = 0
        self.queries: list[dict[str, str]] = []
        self.authorization: list[str] = []
        self._tls = tls
        self._version = 100
        self._oldest = 0
        self._slices: dict[str, dict[str, Any]] = {}
        self._uids = 0
        self._events: list[tuple[int, str | None, bytes]] = []
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._watching: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    async def start(self) -> FakeKubernetes:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Be down; `start` listens on the same port again."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            self._wake()
            await asyncio.sleep(0.001)

    @property
    def watchers(self) -> int:
        return len(self._watching)

    # What tests do

    def put(self, item: dict[str, Any]) -> None:
        """Add or replace a slice."""
        name = item["metadata"]["name"]
        known = self._slices.get(name)
        self._uids += known is None
        uid = known["metadata"]["uid"] if known else f"slice-{self._uids}"
        self._slices[name] = item
        item["metadata"]["uid"] = uid
        self._tell("MODIFIED" if known else "ADDED", item)

    def delete(self, name: str) -> None:
        self._tell("DELETED", self._slices.pop(name))

    def delete_unheard(self, name: str) -> None:
        """Nobody hears of it."""
        del self._slices[name]

    def bookmark(self) -> None:
        self._version += 1
        self._event(None, "BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    def compact(self) -> None:
        """Forget all events: older versions are too old, and running watches are told so."""
        self._version += 1
        self._oldest = self._version
        self._event(None, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})

    def raw(self, line: bytes) -> None:
        """Any bytes into the watches."""
        self._version += 1
        self._events.append((self._version, None, line))
        self._wake()

    def drop_watches(self, beginning: bytes = b"") -> None:
        """Break them off, in the middle of a line."""
        for writer in list(self._watching):
            if beginning:
                writer.write(_chunk(beginning))
            asyncio.get_running_loop().call_soon(writer.transport.close)

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._event(item["metadata"]["labels"][SERVICE_LABEL], kind, item)

    def _event(self, service: str | None, kind: str, item: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": item}, ensure_ascii=False).encode() + b"\n"
        self._events.append((self._version, service, line))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            # A connection may have come just before the end of the server.
            while self._server is not None and await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.partition("\r\n")[0].split(" ")
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.queries.append(query)
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        self.authorization.append(headers.get("authorization", ""))
        while self._server is not None and (self.mute or (self.slow_nodes and "/nodes/" in url.path)):
            await asyncio.sleep(0.01)
        status: tuple[int, Any]
        if self.token is not None and self.authorization[-1] != f"bearer {self.token}":
            self.unauthorized += 1
            status = 401, {"kind": "Status", "code": 401, "message": "Unauthorized"}
        elif self.broken:
            status = 500, {"kind": "Status", "code": 500, "message": "etcdserver: no leader"}
        elif url.path.startswith("/api/v1/nodes/"):
            status = self._node(url.path.rpartition("/")[2])
        elif method != "GET" or url.path != "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices":
            status = 404, {"kind": "Status", "code": 404, "message": f"no {url.path}"}
        elif query.get("watch") == "true":
            self.watches += 1
            version = int(query["resourceVersion"])
            if version < self._oldest:
                status = 410, {"kind": "Status", "code": 410, "message": "too old resource version"}
            else:
                await self._watch(writer, query, version)
                return True
        else:
            self.lists += 1
            wanted = _service(query)
            items = [each for each in self._slices.values() if _of(each) == wanted]
            status = 200, {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        body = json.dumps(status[1]).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status[0], len(body)) + body)
        await writer.drain()
        return True

    def _node(self, name: str) -> tuple[int, Any]:
        self.node_lookups.append(name)
        labels = self.nodes.get(name)
        if labels is None:
            return 403, {"kind": "Status", "code": 403, "message": "nodes is forbidden"}
        return 200, {"kind": "Node", "metadata": {"name": name, "labels": labels}}

    async def _watch(self, writer: asyncio.StreamWriter, query: dict[str, str], version: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        self._watching.add(writer)
        try:
            async with asyncio.timeout(float(query["timeoutSeconds"])):
                while not writer.is_closing():
                    changed = self._changed
                    for number, service, line in list(self._events):
                        if number > version and service in (None, _service(query)):
                            await self._send(writer, line)
                    version = max(version, self._version)
                    await changed.wait()
        except TimeoutError:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self._watching.discard(writer)

    async def _send(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        size = self.piece_bytes or len(line)
        for at in range(0, len(line), size):
            writer.write(_chunk(line[at : at + size]))
            await writer.drain()
            if self.piece_bytes:
                await asyncio.sleep(0.001)


def write_credentials(directory: Path, token: str, namespace: str = "prod", ca: Path | None = None) -> str:
    """The files of a service account; returns the directory."""
    (directory / "token").write_text(f"{token}\n")
    (directory / "namespace").write_text(namespace)
    if ca is not None:
        (directory / "ca.crt").write_bytes(ca.read_bytes())
    return str(directory)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _service(query: dict[str, str]) -> str:
    label, _, service = query["labelSelector"].partition("=")
    assert label == SERVICE_LABEL
    return service


def _of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["labels"][SERVICE_LABEL])
