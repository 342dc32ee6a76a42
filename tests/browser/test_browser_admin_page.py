"""The admin page in a real browser, of a fleet under load."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from chromium import PROGRAM, Chromium
from program import eventually
from shown_proxy import ShownProxy

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Debian's package chromium is not installed")

TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def workers_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("discovery") / "workers.yaml"
    path.write_text("[]")
    return path


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, workers_file: Path) -> Iterator[ShownProxy]:
    source = {"type": "file", "name": "by hand", "path": str(workers_file), "interval": 0.2}
    with ShownProxy(tmp_path_factory.mktemp("proxy"), clients=2, discovery=[source]) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    chromium = Chromium(tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


@pytest.fixture
def page(proxy: ShownProxy, chromium: Chromium) -> Chromium:
    chromium.complaints.clear()
    chromium.open(f"{proxy.admin_url}/admin/")
    chromium.look(1280, 900)
    chromium.wait_for("document.querySelectorAll('#workers tbody button').length == 4")
    return chromium


def text(name: str) -> str:
    return f"document.getElementById('{name}').textContent"


def row(address: str) -> str:
    """The row of a worker, as an expression."""
    return f"[...document.querySelectorAll('#workers tbody tr')].find(row => row.cells[1].textContent == '{address}')"


def confirm(page: Chromium, button: str) -> None:
    """Click a button and say yes."""
    page.run(f"{button}.click()")
    assert page.run("document.getElementById('confirm').open")
    page.run("document.getElementById('confirm_yes').click()")


def test_numbers_change_under_load(page: Chromium) -> None:
    page.wait_for(f"Number({text('request_rate')}) > 0")
    page.wait_for(f"/^[0-9.]+ (ms|s)$/.test({text('first_byte_median')})")
    page.wait_for(f"/^[0-9.]+ (µs|ms|s)$/.test({text('overhead')})")
    page.wait_for("document.querySelectorAll('#first_byte .bar').length >= 7")
    page.wait_for(
        "[...document.querySelectorAll('#workers tbody tr')].every(row => Number(row.cells[5].textContent) > 0)"
    )
    before = page.run(text("first_byte_note"))
    page.wait_for(f"{text('first_byte_note')} != {json.dumps(before)}")
    processes = page.run(
        "[...document.querySelectorAll('#processes tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert [re.sub(r"\d+", "0", process[0]) for process in processes] == ["0 (pid 0)"] * 2
    assert [process[1] for process in processes] == ["serving"] * 2
    assert all(process[5].endswith(" MiB") for process in processes)
    assert page.run(text("connection")) == "live"
    assert page.complaints == []


def test_draining_and_resuming_a_worker(page: Chromium, proxy: ShownProxy) -> None:
    worker = proxy.cluster.context_workers[1]
    page.run(f"{row(worker.address)}.querySelector('button').click()")
    assert worker.address in page.run(text("confirm_title"))
    page.press_escape()
    page.wait_for("!document.getElementById('confirm').open")
    page.wait_for(f"{row(worker.address)}.cells[2].textContent == 'ready'")

    confirm(page, f"{row(worker.address)}.querySelector('button')")
    page.wait_for(f"{row(worker.address)}.cells[2].textContent == 'draining'")
    page.wait_for(f"{row(worker.address)}.cells[4].textContent == '0'")
    page.wait_for(f"{row(worker.address)}.cells[8].textContent == 'Resume'")
    page.wait_for(f"{row(worker.address)}.cells[5].textContent == '0'")
    other = proxy.cluster.context_workers[0]
    before, enough = worker.legs.total(), other.legs.total() + 10
    eventually(lambda: other.legs.total() >= enough, what="ten legs on the other worker")
    assert worker.legs.total() == before

    confirm(page, f"{row(worker.address)}.querySelector('button')")
    page.wait_for(f"{row(worker.address)}.cells[2].textContent == 'ready'")
    page.wait_for(f"Number({row(worker.address)}.cells[5].textContent) > 0")
    assert worker.legs.total() > before
    assert page.complaints == []


def test_pausing_and_resuming_the_proxy(page: Chromium) -> None:
    confirm(page, "document.getElementById('pause')")
    page.wait_for("!document.getElementById('paused').hidden")
    page.wait_for(f"{text('pause')} == 'Resume' && Number({text('queued')}) > 0")
    confirm(page, "document.getElementById('pause')")
    page.wait_for(f"document.getElementById('paused').hidden && {text('queued')} == '0'")
    assert page.complaints == []


def test_errors_are_shown(page: Chromium, proxy: ShownProxy) -> None:
    answer = httpx.post(
        f"http://127.0.0.1:{proxy.port}/v1/chat/completions",
        json={"model": "sim", "messages": [{"role": "user", "content": "x"}], "stream": "yes"},
        headers={"x-request-id": "of-this-test"},
        trust_env=False,
    )
    assert answer.status_code == 400
    page.wait_for("document.getElementById('errors').textContent.includes('of-this-test')")
    cells = page.run(
        "[...document.querySelectorAll('#errors tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        ".find(cells => cells[5] == 'of-this-test')"
    )
    assert cells[1:5] == ["400", "client;invalid_type", "–", "/v1/chat/completions"]


def test_a_worker_can_be_found(page: Chromium, proxy: ShownProxy) -> None:
    address = proxy.cluster.generation_urls[0]
    page.run(
        f"document.getElementById('filter').value = '{address.upper()}';"
        "document.getElementById('filter').dispatchEvent(new Event('input'))"
    )
    assert page.run("document.querySelectorAll('#workers tbody tr').length") == 1
    assert page.run(text("workers_note")) == "1 of 4"


def test_a_source_of_workers_that_is_lost(page: Chromium, proxy: ShownProxy, workers_file: Path) -> None:
    cells = "[...document.querySelectorAll('#sources tbody td')].map(cell => cell.textContent)"
    assert not page.run("document.getElementById('discovery').hidden")
    worker = {"url": proxy.cluster.context_urls[0], "role": "context"}
    workers_file.write_text(json.dumps([worker]))
    page.wait_for(f"{cells}.slice(0, 3).join() == 'by hand,in step,1'")
    workers_file.write_text("- nonsense")
    page.wait_for(f"{cells}.slice(0, 3).join() == 'by hand,lost,1'")
    assert "nonsense" in page.run(f"{cells}[5]")
    assert int(page.run(f"{cells}[4]")) >= 1
    workers_file.write_text("[]")
    page.wait_for(f"{cells}.slice(0, 3).join() == 'by hand,in step,0'")
    assert page.complaints == []


def test_it_fits_a_narrow_window_in_both_schemes(page: Chromium) -> None:
    backgrounds = []
    for scheme in ("light", "dark"):
        page.look(360, 800, scheme)
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        backgrounds.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert len(set(backgrounds)) == 2


def test_every_control_has_a_name(page: Chromium) -> None:
    tree = page.command("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "searchbox", "table", "region", "columnheader"}
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"] and node["role"]["value"] in roles
    ]
    assert {role for role, _ in found} >= {"button", "searchbox", "region"}
    unnamed = [role for role, name in found if not name]
    assert not unnamed
    assert sum(name.startswith("Drain ") for role, name in found if role == "button") == 4


def test_with_a_token(tmp_path: Path, chromium: Chromium) -> None:
    """Asked for when it is needed, gone with the tab, and asked for again when it is wrong."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with ShownProxy(tmp_path, clients=1, admin_token_file=str(token)) as proxy:
        chromium.open(f"{proxy.admin_url}/admin/")
        for given in ("wrong", TOKEN):
            chromium.wait_for("document.getElementById('token')?.open")
            chromium.run(f"document.getElementById('token_value').value = '{given}'")
            chromium.run("document.querySelector('#token form').requestSubmit()")
        chromium.wait_for("document.querySelectorAll('#workers tbody button').length == 4")
        assert chromium.run("document.getElementById('discovery').hidden"), "nothing is discovered here"
        assert chromium.run("localStorage.length") == 0
        assert chromium.run("document.cookie") == ""
        confirm(chromium, "document.querySelector('#workers tbody button')")
        chromium.wait_for("document.getElementById('workers').textContent.includes('draining')")
        # The proxy goes and comes back; the page says so, and goes on.
        proxy.stop()
        chromium.wait_for("document.getElementById('connection').dataset.state == 'lost'")
        assert chromium.run("document.getElementById('pause').disabled")
        proxy.start()
        chromium.wait_for("document.getElementById('connection').dataset.state == 'live'")
        chromium.wait_for("!document.getElementById('pause').disabled")
