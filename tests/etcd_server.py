"""A real etcd on loopback, and a wire to it that can be cut."""

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from free_port import free_port

SECONDS = 30.0

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None, reason="the etcd program is not installed (Debian: etcd-server)"
)


class EtcdServer:
    """One member with its data in a directory; the same port after each start."""

    def __init__(self, directory: Path, *, tls: tuple[str, str, str] | None = None) -> None:
        """``tls``: certificate, key and the authority of the clients' certificates."""
        self._directory = directory
        self._tls = tls
        self.port = free_port()
        self._peer_port = free_port()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """As the workers' configuration wants it."""
        return f"etcd://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> "EtcdServer":
        peer = f"http://127.0.0.1:{self._peer_port}"
        arguments = {
            "data-dir": str(self._directory / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            # A single member elects itself: soon. Leases last at least one and a half election time-outs.
            "heartbeat-interval": "10",
            "election-timeout": "100",
        }
        if self._tls is not None:
            certificate, key, authority = self._tls
            arguments |= {"cert-file": certificate, "key-file": key, "trusted-ca-file": authority}
        options = [f"--{name}={value}" for name, value in arguments.items()]
        if self._tls is not None:
            options.append("--client-cert-auth")
        with (self._directory / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(["etcd", *options], stdout=log, stderr=log)
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        """Wait until it has a leader."""
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert time.monotonic() < deadline, (self._directory / "etcd.log").read_text()[-3000:]
            time.sleep(0.05)

    def _answers(self) -> bool:
        if self._tls is not None:
            return b"ready to serve client requests" in (self._directory / "etcd.log").read_bytes()
        try:
            self.call("kv/range", {"key": encode("x")})
        except urllib.error.HTTPError as error:
            return error.code == 400  # with authentication switched on
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """As a crash of its machine."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def lose_data(self) -> None:
        """Between `stop` and `start`."""
        shutil.rmtree(self._directory / "data")

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/v3/{path}", json.dumps(body).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=5) as answer:
            result: dict[str, Any] = json.load(answer)
            return result

    def put(self, key: str, value: str) -> None:
        self.call("kv/put", {"key": encode(key), "value": encode(value)})

    def delete(self, key: str) -> None:
        self.call("kv/deleterange", {"key": encode(key)})

    def keys(self, prefix: str) -> list[str]:
        """All that begin like this."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("kv/range", {"key": encode(prefix), "range_end": encode(end), "keys_only": True})
        return [base64.b64decode(each["key"]).decode() for each in found.get("kvs", [])]

    def compact(self) -> None:
        """Forget all history."""
        revision = self.call("kv/range", {"key": encode("x")})["header"]["revision"]
        self.call("kv/compaction", {"revision": revision})


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@asynccontextmanager
async def listening(answer: bytes = b"") -> AsyncIterator[str]:
    """The url of something that is no etcd: it takes requests and sends ``answer``, or nothing if that is empty."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Wire:
    """A TCP port that leads to another one; can be cut, or swallow everything without a word."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def cut(self) -> None:
        """Refuse and reset connections."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def swallow(self) -> None:
        """As a machine that has lost its network: bytes go in, nothing comes out."""
        self._flows.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(back)
            for source, sink in ((reader, back), (there, writer)):
                task = asyncio.create_task(self._pump(source, sink))
                self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
