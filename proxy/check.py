"""The `check` command: shows the configuration in force and asks every worker how it is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import yaml

from proxy.config.address import WorkerAddress
from proxy.config.listed_worker import ListedWorker
from proxy.config.settings import ProxySettings, Settings
from proxy.config.values import masked
from proxy.named_files import check_named_files, storage_key
from proxy.telemetry.tracing_setup import check_tracing
from proxy.tokenisation.setup import open_tokenizer
from proxy.upstream.access import WorkerAccess
from proxy.workers.discovery.embedded import EmbeddedSource
from proxy.workers.discovery.once import Found, ask_once
from proxy.workers.discovery.remote_storage import RemoteStorageSource
from proxy.workers.discovery.source import Source
from proxy.workers.discovery.table import check_sources, make_sources
from proxy.workers.probe import ProbeResult, control_client, probe_worker

_HEADINGS = ("role", "address", "health", "version", "model", "latency", "detail")
_SOURCE_HEADINGS = ("source", "workers", "draining", "detail")
_SOURCE_SECONDS = 10.0
_UNKNOWN = "-"


def run_check(settings: Settings, *, output: TextIO | None = None) -> int:
    """Print configuration, inherited keys, warnings and the state of every worker to `output` (standard output).

    Returns the exit code: 0 when every source of workers tells them, both roles have workers and all of them are
    healthy, else 1.
    """
    check_named_files(settings.proxy)
    check_tracing(settings)
    open_tokenizer(settings.proxy)
    check_sources(settings)
    stream = output if output is not None else sys.stdout
    stream.write(f"# configuration in force ({settings.origin or 'no file'})\n")
    stream.write(_yaml(settings.resolved()))
    inherited = _inherited(settings)
    if inherited:
        stream.write("\n# for the workers only, without effect on the proxy\n")
        stream.write(_yaml(inherited))
    if settings.warnings:
        stream.write("\n# warnings\n")
        stream.writelines(f"- {warning}\n" for warning in settings.warnings)
    workers = _workers(settings.workers)
    found = asyncio.run(_ask_sources(settings))
    if found:
        stream.write("\n# discovery\n")
        stream.writelines(f"{line}\n" for line in format_table([_SOURCE_HEADINGS, *map(_source_row, found)]))
        discovered = [worker for source in found for worker in source.workers or ()]
        workers = list(dict.fromkeys([*workers, *_workers(discovered)]))
    stream.write("\n# workers\n")
    stream.flush()
    results = asyncio.run(_probe_all({address for _, address in workers}, settings.proxy))
    rows = [_row(role, results[address]) for role, address in workers]
    stream.writelines(f"{line}\n" for line in format_table([_HEADINGS, *rows]))
    stream.writelines(f"note: {note}\n" for note in _differences(results.values()))
    complete = {role for role, _ in workers} == {"context", "generation"}
    told = all(source.workers is not None for source in found)
    return 0 if complete and told and all(result.healthy for result in results.values()) else 1


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the columns of a table with two blanks between them; all rows have the same length."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


async def _probe_all(
    addresses: Iterable[WorkerAddress], proxy: ProxySettings
) -> dict[WorkerAddress, ProbeResult]:
    access = WorkerAccess(proxy)

    async def probe(address: WorkerAddress) -> ProbeResult:
        async with control_client(address, access) as client:
            return await probe_worker(client, address, proxy.probe_timeout)

    results = await asyncio.gather(*map(probe, addresses))
    return {result.address: result for result in results}


async def _ask_sources(settings: Settings) -> list[Found]:
    sources = [_remote(source, settings) for source in make_sources(settings)]
    return list(await asyncio.gather(*(ask_once(source, _SOURCE_SECONDS) for source in sources)))


def _remote(source: Source, settings: Settings) -> Source:
    """What a source knows that is part of the running proxy, the proxy can be asked."""
    cluster = settings.disagg_cluster
    if cluster is None or not isinstance(source, EmbeddedSource):
        return source
    key = storage_key(settings.proxy)
    return RemoteStorageSource(cluster.cluster_uri, cluster.cluster_name, None if key is None else key.value)


def _source_row(found: Found) -> tuple[str, ...]:
    if found.workers is None:
        return _printable(found.source), _UNKNOWN, _UNKNOWN, _printable(found.problem)
    draining = sum(worker.draining for worker in found.workers)
    return _printable(found.source), str(len(found.workers)), str(draining), ""


def _workers(listed: Iterable[ListedWorker]) -> list[tuple[str, WorkerAddress]]:
    return [(worker.role, worker.address) for worker in listed]


def _row(role: str, result: ProbeResult) -> tuple[str, ...]:
    cells = (
        role,
        result.address.text,
        result.state,
        result.version or _UNKNOWN,
        ", ".join(result.models) or _UNKNOWN,
        _UNKNOWN if result.latency_ms is None else f"{result.latency_ms:.1f} ms",
        result.detail,
    )
    return tuple(map(_printable, cells))


def _printable(text: str) -> str:
    """Replace what could steer a terminal: some of the texts come from the workers."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _differences(results: Iterable[ProbeResult]) -> list[str]:
    """Name what should be equal on all workers and is not; KV caches move only between like workers."""
    healthy = [result for result in results if result.healthy]
    versions = sorted({result.version for result in healthy if result.version is not None})
    models = sorted({", ".join(result.models) for result in healthy if result.models})
    return [
        _printable(f"the workers report different {what}: {'; '.join(found)}")
        for what, found in (("versions", versions), ("models", models))
        if len(found) > 1
    ]


def _inherited(settings: Settings) -> dict[str, Any]:
    groups: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("", settings.inherited),
        ("context_servers.", settings.context_servers.inherited),
        ("generation_servers.", settings.generation_servers.inherited),
    )
    return {
        f"{prefix}{name}": masked(name, value) for prefix, group in groups for name, value in group.items()
    }


def _yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)
    return text
