"""The files of the admin page, and who may use the routes behind it."""

import re
from pathlib import Path

import httpx
import pytest
from running_proxy import running_proxy

from proxy.endpoints.admin.page import page_routes

ADMIN = {"admin_listen": "127.0.0.1:0"}
FOLDER = Path(__file__).parents[2] / "proxy/endpoints/admin/page"


def admin_client(proxy, **options):
    return httpx.AsyncClient(base_url=proxy.admin_url, timeout=10, trust_env=False, **options)


async def test_every_file_is_served_with_a_strict_policy() -> None:
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        for path in (*page_routes(), "/admin/"):
            answer = await admin.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'")
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await admin.head("/admin/")).text == ""


def test_nothing_comes_from_elsewhere() -> None:
    files = [path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(files) == len(page_routes())
    for path in files:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|eval\(|style=|\son\w+=\"", text), path.name
    names = set(re.findall(r'(?:src|href)="([^"]+)"', (FOLDER / "index.html").read_text()))
    assert names <= page_routes().keys()


async def test_the_token_guards_everything_but_the_page(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    async with (
        running_proxy(admin_token_file=str(token), **ADMIN) as proxy,
        admin_client(proxy, headers={"host": "proxy.example"}) as admin,
    ):
        assert (await admin.get("/admin/")).status_code == 200
        assert (await admin.post("/admin/")).status_code == 401
        for path in ("/admin/status", "/admin/page", "/admin/other.js"):
            assert (await admin.get(path)).status_code == 401
        assert (await admin.post("/admin/pause")).status_code == 401
        assert (
            await admin.get("/admin/status", headers={"authorization": "Bearer secret"})
        ).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example", "origin": "http://evil.example"},
    ],
)
@pytest.mark.parametrize("path", ["/admin/pause", "/admin/drain", "/admin/workers/drain"])
async def test_pages_of_other_sites_change_nothing(path: str, headers: dict[str, str]) -> None:
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        answer = await admin.post(path, headers=headers, json={"workers": [proxy.cluster.context_urls[0]]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site_request")
        assert not proxy.service.admission.paused
        assert all(worker.ready for worker in proxy.service.registry.workers)


async def test_a_name_of_another_site_reads_nothing() -> None:
    async with running_proxy(**ADMIN) as proxy, admin_client(proxy) as admin:
        port = proxy.app.admin.port
        for host, status in (
            ("evil.example", 403),
            (f"evil.example:{port}", 403),
            ("localhost", 200),
            (f"LOCALHOST:{port}", 200),
            (f"127.0.0.1:{port}", 200),
            ("[::1]:1", 200),
        ):
            assert (await admin.get("/admin/status", headers={"host": host})).status_code == status
        own = {"origin": proxy.admin_url, "sec-fetch-site": "same-origin"}
        assert (await admin.post("/admin/resume", headers=own)).status_code == 200


async def test_a_unix_socket_goes_by_any_name(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with running_proxy(admin_listen=f"unix:{path}"):
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://whatever") as admin:
            assert (await admin.get("/admin/status")).status_code == 200
