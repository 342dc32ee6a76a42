"""The client for etcd's JSON gateway, against a real etcd."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, needs_openssl
from etcd_server import EtcdServer, Wire, listening, needs_etcd
from free_port import free_port

from proxy.workers.discovery.etcd_client import (
    Change,
    EtcdAccess,
    EtcdClient,
    EtcdError,
    LeaseGone,
    WatchLost,
)

pytestmark = needs_etcd


@asynccontextmanager
async def client_of(*urls: str, **options: Any) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(EtcdAccess(urls, **options))
    try:
        yield client
    finally:
        await client.close()


async def test_keys(etcd: EtcdServer) -> None:
    async with client_of(etcd.url) as client:
        assert (await client.read("/a/")).values == {}
        assert await client.create("/a/1", "é")
        assert not await client.create("/a/1", "y")
        assert await client.create("/b/1", "z")
        snapshot = await client.read("/a/")
        assert snapshot.values == {"/a/1": "é"}
        assert (await client.read("/a/", keys_only=True)).values == {"/a/1": ""}
        assert await client.create("/a/2", "x")
        assert (await client.read("/a/")).revision == snapshot.revision + 1


async def test_a_watch_tells_changes_from_a_revision_on(etcd: EtcdServer) -> None:
    async with client_of(etcd.url) as client:
        await client.create("/a/1", "x")
        first = (await client.read("/a/")).revision
        lease = await client.grant(60)
        await client.create("/a/2", "y", lease=lease)
        async with aclosing(client.watch("/a/", first + 1)) as changes:
            assert await anext(changes) == []
            assert await anext(changes) == [Change("/a/2", "y")]
            etcd.put("/a/1", "z")
            etcd.put("/b/1", "z")
            etcd.delete("/a/1")
            assert [await anext(changes), await anext(changes)] == [
                [Change("/a/1", "z")],
                [Change("/a/1", None)],
            ]
            await client.revoke(lease)
            assert await anext(changes) == [Change("/a/2", None)]


async def test_a_lease_that_runs_out_takes_its_keys_along(etcd: EtcdServer) -> None:
    async with client_of(etcd.url) as client:
        lease = await client.grant(2)
        await client.create("/a/1", "x", lease=lease)
        revision = (await client.read("/a/")).revision
        await client.keep_alive(lease)
        async with aclosing(client.watch("/a/", revision + 1)) as changes:
            await anext(changes)
            async with asyncio.timeout(30):
                assert await anext(changes) == [Change("/a/1", None)]
        for call in (client.keep_alive(lease), client.revoke(lease), client.create("/a/1", "x", lease=lease)):
            with pytest.raises(LeaseGone):
                await call


async def test_a_watch_of_what_was_compacted_says_so(etcd: EtcdServer) -> None:
    etcd.put("/a/1", "x")
    etcd.put("/a/1", "y")
    etcd.compact()
    async with client_of(etcd.url) as client:
        async with aclosing(client.watch("/a/", 1)) as changes:
            assert await anext(changes) == []
            with pytest.raises(WatchLost) as caught:
                await anext(changes)
        assert caught.value.compacted


async def test_a_watch_whose_connection_ends_says_so(etcd: EtcdServer) -> None:
    async with Wire(etcd.port) as wire, client_of(wire.url, etcd.url) as client:
        async with aclosing(client.watch("/a/", 1)) as changes:
            await anext(changes)
            wire.cut()
            with pytest.raises(WatchLost) as caught:
                await anext(changes)
        assert not caught.value.compacted
        assert client.endpoint == etcd.url


async def test_the_next_endpoint_is_asked_when_one_fails(etcd: EtcdServer) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    async with client_of(dead, etcd.url) as client:
        assert await client.create("/a/1", "x")
        assert client.member == 1
        etcd.stop()
        with pytest.raises(EtcdError, match=rf"(?s){dead}.*{etcd.url}|{etcd.url}.*{dead}"):
            await client.read("/a/")


async def test_an_endpoint_that_swallows_everything_costs_its_time_out(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.workers.discovery.etcd_client._CALL_SECONDS", 0.3)
    async with Wire(etcd.port) as wire, client_of(wire.url, etcd.url) as client:
        wire.swallow()
        assert (await client.read("/a/")).values == {}
        assert client.member == 1


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"[]",
        b"{}",
        b"\xff",
        b'{"header": {"revision": "1"}, "kvs": [{"key": "a"}]}',
        b'{"header": {"revision": "x"}}',
    ],
)
async def test_something_else_than_etcd(body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    async with listening(head % len(body) + body) as url, client_of(url) as client:
        with pytest.raises(EtcdError):
            await client.read("/a/")
        with pytest.raises(WatchLost):
            await anext(client.watch("/a/", 1))


async def test_authentication(etcd: EtcdServer) -> None:
    etcd.call("auth/user/add", {"name": "root", "password": "secret"})
    etcd.call("auth/role/add", {"name": "root"})
    etcd.call("auth/user/grant", {"user": "root", "role": "root"})
    etcd.call("auth/enable", {})
    async with client_of(etcd.url, user="root", password="secret") as client:
        assert await client.create("/a/1", "x")
        async with aclosing(client.watch("/a/", 1)) as changes:
            assert await anext(changes) == []
            assert await anext(changes) == [Change("/a/1", "x")]
        # It forgets its tokens.
        await asyncio.to_thread(etcd.restart)
        assert (await client.read("/a/")).values == {"/a/1": "x"}
    async with client_of(etcd.url, user="root", password="wrong") as client:
        with pytest.raises(EtcdError, match="does not let root in") as caught:
            await client.read("/a/")
        assert "wrong" not in str(caught.value)
    async with client_of(etcd.url) as client:
        with pytest.raises(EtcdError, match="user name is empty"):
            await client.read("/a/")


@needs_openssl
async def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("etcd")
    ca = str(authority.certificate)
    server = EtcdServer(tmp_path, tls=(certificate, key, ca)).start()
    try:
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(certificate, key)
        async with client_of(server.url, tls=context) as client:
            assert await client.create("/a/1", "x")
            async with aclosing(client.watch("/a/", 1)) as changes:
                assert await anext(changes) == []
                assert await anext(changes) == [Change("/a/1", "x")]
        async with client_of(server.url, tls=ssl.create_default_context()) as client:
            with pytest.raises(EtcdError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.read("/a/")
    finally:
        server.stop()
