import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import yaml

from proxy.check import format_table, run_check
from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.discovery.file import FileEntry
from proxy.config.settings import ProxySettings, ServerSection, Settings


@asynccontextmanager
async def worker(
    version: str = "1.3.0", model: str = "llama", health: int = 200, ready: asyncio.Barrier | None = None
) -> AsyncIterator[WorkerAddress]:
    """Run a small worker; with `ready` each `/health` waits for the other parties."""
    bodies = {
        "/health": b"",
        "/version": json.dumps({"version": version}).encode(),
        "/v1/models": json.dumps({"data": [{"id": model}]}).encode(),
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
        if ready is not None and path == "/health":
            await ready.wait()
        status = health if path == "/health" else 200
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-length: {len(bodies[path])}\r\n\r\n".encode() + bodies[path]
        )
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield parse_worker_address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")


def section(*addresses: WorkerAddress) -> ServerSection:
    return ServerSection(len(addresses), addresses)


def settings_for(context: ServerSection, generation: ServerSection) -> Settings:
    return Settings(
        context_servers=context, generation_servers=generation, proxy=ProxySettings(probe_timeout=5.0)
    )


async def check(settings: Settings) -> tuple[int, str]:
    output = io.StringIO()
    code = await asyncio.to_thread(run_check, settings, output=output)
    return code, output.getvalue()


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.partition("# workers\n")[2].splitlines()]


async def test_all_healthy():
    async with worker() as first, worker() as second:
        code, text = await check(settings_for(section(first), section(second)))
    assert code == 0
    rows = table(text)
    assert rows[0] == ["role", "address", "health", "version", "model", "latency", "detail"]
    assert rows[1][:5] == ["context", first.text, "healthy", "1.3.0", "llama"]
    assert rows[2][:5] == ["generation", second.text, "healthy", "1.3.0", "llama"]
    assert all(row[6] == "ms" and float(row[5]) > 0 for row in rows[1:])
    assert len(rows) == 3


@pytest.mark.parametrize("health", [500, 503])
async def test_an_unhealthy_worker_fails_the_check(health):
    async with worker() as first, worker(health=health) as second:
        code, text = await check(settings_for(section(first), section(second)))
    assert code == 1
    assert table(text)[2][2] == "unhealthy"
    assert text.rstrip().endswith(f"status {health}:")


async def test_an_unreachable_worker_fails_the_check():
    async with worker() as gone:
        pass
    async with worker() as first:
        code, text = await check(settings_for(section(first), section(first, gone)))
    assert code == 1
    assert table(text)[3][:7] == ["generation", gone.text, "unreachable", "-", "-", "-", "All"]


async def test_a_role_without_workers_fails_the_check():
    async with worker() as only:
        assert (await check(settings_for(section(only), section())))[0] == 1
    code, text = await check(Settings())
    assert code == 1
    assert table(text) == [["role", "address", "health", "version", "model", "latency", "detail"]]


async def test_a_worker_of_both_roles_is_listed_twice():
    async with worker() as both:
        code, text = await check(settings_for(section(both), section(both)))
    assert code == 0
    assert [row[:2] for row in table(text)[1:]] == [["context", both.text], ["generation", both.text]]


async def test_workers_are_asked_in_parallel():
    ready = asyncio.Barrier(3)
    async with worker(ready=ready) as a, worker(ready=ready) as b, worker(ready=ready) as c:
        code, _ = await check(settings_for(section(a, b), section(c)))
    assert code == 0


async def test_differences_are_noted():
    async with worker("1.2.0", "llama") as first, worker("1.3.0", "qwen\x1b[31m") as second:
        code, text = await check(settings_for(section(first), section(second)))
    assert code == 0
    assert "note: the workers report different versions: 1.2.0; 1.3.0\n" in text
    assert "note: the workers report different models: llama; qwen?[31m\n" in text
    assert "\x1b" not in text


async def test_configuration_is_printed():
    settings = Settings(
        hostname="0.0.0.0",
        internal_request_auth_key="hunter2",
        inherited={"model": "llama"},
        context_servers=ServerSection(inherited={"kv_cache_config": {"tokens_per_block": 32}}),
        generation_servers=ServerSection(inherited={"internal_request_auth_key": "hunter3"}),
        warnings=("first warning", "second warning"),
        origin="disagg.yaml",
    )
    _, text = await check(settings)
    head, configuration, inherited, warnings = text.partition("# workers\n")[0].split("# ")
    assert head == ""
    title, _, body = configuration.partition("\n")
    assert title == "configuration in force (disagg.yaml)"
    assert yaml.safe_load(body) == settings.resolved()
    title, _, body = inherited.partition("\n")
    assert title == "for the workers only, without effect on the proxy"
    assert yaml.safe_load(body) == {
        "model": "llama",
        "context_servers.kv_cache_config": {"tokens_per_block": 32},
        "generation_servers.internal_request_auth_key": "***",
    }
    assert warnings == "warnings\n- first warning\n- second warning\n\n"
    assert "hunter" not in text


def test_sections_without_content_are_left_out(capsys):
    assert run_check(msgspec.structs.replace(Settings(), hostname="::")) == 1
    text = capsys.readouterr().out
    assert text.startswith("# configuration in force (no file)\nhostname: '::'\n")
    assert "# warnings" not in text
    assert "for the workers only" not in text


def test_columns_are_aligned():
    assert format_table([["a", "b", "c"], ["long", "", "x"], ["", "y", ""]]) == [
        "a     b  c",
        "long     x",
        "      y",
    ]


async def test_sources_of_workers_are_asked_and_their_workers_probed(tmp_path):
    path = tmp_path / "workers.yaml"
    async with worker() as context, worker() as generation:
        entries = [
            {"url": context.text, "role": "context"},
            {"url": generation.text, "role": "generation"},
        ]
        path.write_text(yaml.safe_dump(entries))
        sources = (
            FileEntry(name="good", path=str(path)),
            FileEntry(name="bad", path=str(tmp_path / "none.yaml")),
        )
        settings = Settings(
            context_servers=ServerSection(urls=(context,)), proxy=ProxySettings(discovery=sources)
        )
        code, output = await check(settings)
        found = output.partition("# discovery\n")[2]
        assert "good    2        0" in found
        assert "bad     -        -         " in found
        assert "No such file" in found
        assert len([line for line in found.splitlines() if " healthy " in line]) == 2
        assert code == 1
        settings = Settings(proxy=ProxySettings(discovery=sources[:1]))
        assert (await check(settings))[0] == 0
