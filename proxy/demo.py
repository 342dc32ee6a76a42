"""The `demo` command: the proxy with simulated workers in one process, and a curl to try it."""

from __future__ import annotations

import asyncio
import sys
from typing import TextIO

import uvloop

from proxy.config.load import load_settings
from proxy.config.settings import Settings
from proxy.serve import make_server
from proxy.sim.cluster import ThreadedSimCluster
from proxy.telemetry.logs import configure_logging

_GREETING = """\
{workers}
The proxy listens on http://{host}:{port}  (Ctrl+C ends it). Try:

  curl -N http://{host}:{port}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "sim", "stream": true, "messages": [{{"role": "user", "content": "Hello!"}}]}}'

"""


def run_demo(host: str, port: int, *, output: TextIO | None = None) -> int:
    """Run until a signal; returns the exit code.

    Args:
        host, port: where the proxy listens.
        output: where the greeting goes (standard output).
    """
    configure_logging("info", "text", access_log=True)
    with ThreadedSimCluster(context=2, generation=2) as cluster:
        sections = {
            "hostname": host,
            "port": port,
            "context_servers": {"urls": cluster.context_urls, "router": {"type": "load_balancing"}},
            "generation_servers": {"urls": cluster.generation_urls, "router": {"type": "load_balancing"}},
            "gen_tokids_ctxbytes": True,
            "drain_grace": 0,
        }
        settings = load_settings(None, overrides=sections, environ={})
        names = [f"  {role} worker (simulated) on {url}" for role, url in _named(cluster)]
        greeting = _GREETING.format(workers="\n".join(names), host=host, port=port)
        try:
            uvloop.run(_serve(settings, greeting, output or sys.stdout))
        except SystemExit as stop:
            return int(bool(stop.code))
    return 0


def _named(cluster: ThreadedSimCluster) -> list[tuple[str, str]]:
    return [("context", url) for url in cluster.context_urls] + [
        ("generation", url) for url in cluster.generation_urls
    ]


async def _serve(settings: Settings, greeting: str, output: TextIO) -> None:
    server = make_server(settings)
    serving = asyncio.ensure_future(server.serve())
    ready = asyncio.ensure_future(server.wait_ready())
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        output.write(greeting)
        output.flush()
    ready.cancel()
    await serving
