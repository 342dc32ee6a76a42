"""The `fields` command: what becomes of each request field, and of one request."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

import msgspec

from proxy.check import format_table
from proxy.config.address import WorkerAddress, parse_worker_address
from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.settings import Settings
from proxy.upstream.access import WorkerAccess
from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.fields.accepted import ACCEPTED, WITHOUT_EFFECT, Accepted, common
from proxy.wire.fields.messages import messages_rule
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.fields.rule import Rule
from proxy.wire.fields.tables import GROUPS, GROUPS_OF_DIALECT
from proxy.wire.members import Members, join_object, split_object
from proxy.wire.versions import WorkerVersion
from proxy.workers.capabilities import Capabilities, Known, field_options
from proxy.workers.ping import Pinger

_HEADINGS = ("field", "route", "what becomes of it", "why")
_OWN = "field_rules"
_WIDTH = 110
_WIDTHS = (46, 11, 62, 48)


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code is 1 when the explained request would be refused.

    Raises:
        ConfigError: a file or an address cannot be used.
    """
    settings = load_settings(args.config, overrides={}, environ=os.environ)
    options = field_options(settings.proxy)
    if args.dialect is not None:
        options = msgspec.structs.replace(options, dialect=args.dialect)
    lines, accepted = asyncio.run(_accepted(settings, args.worker, args.worker_version))
    request = None if args.explain is None else _read(args.explain)
    output = sys.stdout
    output.writelines(f"# {line}\n" for line in [*lines, _summary(options)])
    output.write("\n")
    if request is not None:
        return explain(request, accepted, options, output)
    output.writelines(f"{line}\n" for line in rule_table(options))
    for title, chat in (("chat completions", True), ("completions", False)):
        names = ", ".join(sorted(FieldPolicy(accepted, chat=chat, options=options).route))
        output.write(f"\n# accepted on {title}\n")
        output.writelines(f"{line}\n" for line in textwrap.wrap(names, _WIDTH))
    return 0


def rule_table(options: Options) -> Iterator[str]:
    """The rules in force, as lines of a table, group by group."""
    for title, rows in _groups(options):
        yield f"# {title}"
        yield from format_table([_HEADINGS, *(line for row in rows for line in _lines(row))])
        yield ""


def explain(request: Members, accepted: Accepted, options: Options, output: TextIO) -> int:
    """Print what the workers would get for a request of which they accept this much; 1 if it is refused."""
    chat = "messages" in request or "prompt" not in request
    policy = FieldPolicy(accepted, chat=chat, options=options)
    output.write(f"# POST {'/v1/chat/completions' if chat else '/v1/completions'}\n")
    try:
        applied = policy.apply(request)
    except InvalidField as error:
        output.write(f"refused with 400: {error.message}\nparam: {error.param}\ncode: {error.code}\n")
        return 1
    gone = [name for name in request if name not in applied.members and name not in applied.dropped]
    output.write(f"dropped: {', '.join(applied.dropped) or 'nothing'}\n")
    output.write(f"translated or null: {', '.join(gone) or 'nothing'}\n\n")
    sent = msgspec.json.format(join_object(applied.members), indent=2)
    output.write(f"{sent.decode(errors='replace')}\n")
    return 0


async def _accepted(
    settings: Settings, urls: Sequence[str] | None, version: str | None
) -> tuple[list[str], Accepted]:
    """What the workers have in common, with one line that says how it is known for each."""
    configured = settings.proxy.worker_version
    if version is None and configured != "auto" and not urls:
        version = configured
    if version is not None:
        return [f"workers of version {version} (built-in table)"], ACCEPTED[WorkerVersion(version)]
    addresses = (
        _addresses(urls) if urls else list(dict.fromkeys(worker.address for worker in settings.workers))
    )
    access = WorkerAccess(settings.proxy)
    found = await asyncio.gather(
        *(_ask(address, settings.proxy.probe_timeout, access) for address in addresses)
    )
    lines = [line for line, _ in found]
    known = [accepted for _, accepted in found if accepted is not None]
    if not known:
        lines.append(f"no worker was asked: version {WorkerVersion.NEW} is assumed (built-in table)")
        known = [ACCEPTED[WorkerVersion.NEW]]
    return lines, common(known)


async def _ask(address: WorkerAddress, timeout: float, access: WorkerAccess) -> tuple[str, Accepted | None]:
    pinger = Pinger(address, timeout=timeout, access=access)
    capabilities = Capabilities()
    try:
        version, _ = await pinger.identify()
        await capabilities.look_up(pinger, version)
    finally:
        await pinger.close()
    if capabilities.known is Known.ASSUMED:
        return f"worker {address.text}: says nothing of what it accepts", None
    how = "its schema" if capabilities.known is Known.SCHEMA else "its version"
    return (
        f"worker {address.text}: version {version or 'unknown'}, fields known from {how}",
        capabilities.accepted,
    )


def _addresses(urls: Iterable[str]) -> list[WorkerAddress]:
    addresses = []
    for url in urls:
        try:
            addresses.append(parse_worker_address(url))
        except ValueError as error:
            raise ConfigError(str(error), origin="command line", key="--worker", value=url) from None
    return addresses


def _read(path: str) -> Members:
    try:
        if path == "-":
            text = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                text = file.read()
        return split_object(text)
    except (OSError, MalformedJSON) as error:
        problem = getattr(error, "strerror", None) or f"not a JSON object: {error}"
        raise ConfigError(problem, origin="command line", key="--explain", value=path) from None


def _groups(options: Options) -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    if options.rules:
        yield _OWN, [(rule.field, rule.route, rule.text, "") for rule in options.rules]
    titles = GROUPS_OF_DIALECT[options.dialect]
    for title, rules in GROUPS:
        if title in titles:
            yield title, [_row(rule) for rule in rules]
    if options.dialect == "trtllm":
        yield "messages", [_row(messages_rule(options.developer_as_system))]
        fallback = [
            (name, "both", "dropped where the workers do not know it", "changes no token")
            for name in sorted(WITHOUT_EFFECT)
        ]
        yield "by version", fallback


def _lines(row: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A row whose long cells go on in the lines below."""
    cells = [textwrap.wrap(cell, width) for cell, width in zip(row, _WIDTHS, strict=True)]
    return zip_longest(*cells, fillvalue="")


def _row(rule: Rule) -> tuple[str, str, str, str]:
    return rule.field, rule.route, rule.effect.text, rule.why


def _summary(options: Options) -> str:
    others = {
        "drop": "dropped and counted",
        "reject": "refused",
        "pass": "passed on",
    }[options.unknown]
    if options.dialect != "trtllm":
        others = "passed on"
    return f"dialect {options.dialect}; fields that nobody knows are {others}"
