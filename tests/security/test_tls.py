"""TLS on both sides, with and without certificates of clients."""

import asyncio
import ssl
import subprocess

import httpx
import pytest
from certificates import Authority, needs_openssl
from running_proxy import CHAT, chat, eventually, running_proxy, settings_for
from tls_front import tls_front

from proxy.config.errors import ConfigError
from proxy.config.settings import ProxySettings
from proxy.named_files import check_named_files
from proxy.serve import make_server
from proxy.sim import SimCluster

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


def client_context(authority, certificate=None):
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def server_context(certificate, client_authority=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(str(client_authority.certificate))
    return context


async def test_clients_speak_tls(authority):
    certificate, key = authority.sign("proxy")
    keys = {"tls_certfile": certificate, "tls_keyfile": key, "admin_listen": "127.0.0.1:0"}
    options = {"verify": client_context(authority)}
    async with running_proxy(url="https", client=options, **keys) as proxy:
        assert (await proxy.send()).status_code == 200
        async with proxy.client.stream("POST", CHAT, json=chat(stream=True)) as response:
            lines = [line async for line in response.aiter_lines()]
        assert lines[-2] == "data: [DONE]"
        url = proxy.admin_url.replace("http://", "https://")
        async with httpx.AsyncClient(verify=client_context(authority), trust_env=False) as admin:
            assert (await admin.get(f"{url}/admin/status")).status_code == 200
        async with httpx.AsyncClient(trust_env=False) as plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(f"http://127.0.0.1:{proxy.port}/health")


async def test_clients_need_a_certificate(authority, stranger):
    certificate, key = authority.sign("proxy")
    keys = {"tls_certfile": certificate, "tls_keyfile": key, "tls_client_ca": str(authority.certificate)}
    options = {"verify": client_context(authority, authority.sign("client"))}
    async with running_proxy(url="https", client=options, **keys) as proxy:
        assert (await proxy.send()).status_code == 200
        for wrong in (None, stranger.sign("client")):
            context = client_context(authority, wrong)
            async with httpx.AsyncClient(verify=context, trust_env=False) as other:
                with pytest.raises(httpx.TransportError):
                    await other.get(f"https://127.0.0.1:{proxy.port}/health")


async def served(keys, context, generation, *, ready):
    """One proxy in front of workers behind TLS; the status of a request, None if the proxy is never ready."""
    async with (
        SimCluster(context=1, generation=1) as cluster,
        tls_front(cluster.context_urls[0], context) as first,
        tls_front(cluster.generation_urls[0], generation) as second,
    ):
        urls = {"context_servers": {"urls": [first]}, "generation_servers": {"urls": [second]}}
        server = make_server(settings_for(cluster, **urls, **keys))
        serving = asyncio.create_task(server.serve())
        await eventually(lambda: server.started, "the start")
        service = server.config.app.service
        try:
            if not ready:
                await asyncio.sleep(0.5)
                assert not service.ready
                return None
            await eventually(lambda: service.ready, "readiness")
            port = server.servers[0].sockets[0].getsockname()[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                models = await client.get("/v1/models")
                assert models.status_code == 200
                return (await client.post(CHAT, json=chat())).status_code
        finally:
            server.hurry()
            server.should_exit = True
            await serving


async def test_workers_speak_tls_and_know_the_proxy(authority):
    worker = server_context(authority.sign("worker"), authority)
    certificate, key = authority.sign("proxy")
    keys = {
        "worker_tls_ca": str(authority.certificate),
        "worker_tls_certfile": certificate,
        "worker_tls_keyfile": key,
    }
    assert await served(keys, worker, worker, ready=True) == 200


async def test_a_worker_of_another_authority_is_not_used(authority, stranger):
    worker = server_context(authority.sign("worker"))
    foreign = server_context(stranger.sign("worker"))
    keys = {"worker_tls_ca": str(authority.certificate)}
    assert await served(keys, worker, foreign, ready=False) is None


async def test_workers_need_not_be_verified(stranger):
    foreign = server_context(stranger.sign("worker"))
    assert await served({"worker_tls_verify": False}, foreign, foreign, ready=True) == 200


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"tls_certfile": "nothing"}, "proxy.tls_certfile = nothing: cannot be used for TLS: No such file"),
        ({"tls_certfile": "CERTIFICATE", "tls_keyfile": "OTHER"}, "proxy.tls_certfile"),
        (
            {"tls_certfile": "CERTIFICATE", "tls_keyfile": "KEY", "tls_client_ca": "nothing"},
            "proxy.tls_client_ca",
        ),
        ({"worker_tls_ca": "nothing"}, "proxy.worker_tls_ca = nothing: cannot be used for TLS"),
        ({"worker_tls_certfile": "CERTIFICATE", "worker_tls_keyfile": "OTHER"}, "proxy.worker_tls_certfile"),
        (
            {"worker_tls_certfile": "CERTIFICATE", "worker_tls_keyfile": "ENCRYPTED"},
            "proxy.worker_tls_certfile",
        ),
        ({"tls_certfile": "CERTIFICATE", "tls_keyfile": "ENCRYPTED"}, "proxy.tls_certfile"),
    ],
)
def test_wrong_files(authority, tmp_path, keys, problem):
    certificate, key = authority.sign("proxy")
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", key, "-out", str(encrypted)],
        check=True,
        capture_output=True,
    )
    names = {
        "CERTIFICATE": certificate,
        "KEY": key,
        "OTHER": authority.sign("other")[1],
        "ENCRYPTED": str(encrypted),
    }
    with pytest.raises(ConfigError) as caught:
        check_named_files(ProxySettings(**{name: names.get(value, value) for name, value in keys.items()}))
    assert str(caught.value).startswith(problem)
