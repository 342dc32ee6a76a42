"""Renders the metrics for a scrape without keeping the event loop from its requests, however many workers there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy.telemetry.collector import ProxyCollector
from proxy.telemetry.gauges import Gauges
from proxy.telemetry.slices import in_slices

_END = b"# EOF\n"  # of OpenMetrics


class _Only(Collector):
    """Presents one part as all there is, since the library renders whole collectors."""

    def __init__(self, part: Metric) -> None:
        self._part = part

    def collect(self) -> Iterator[Metric]:
        yield self._part


class Exposition:
    """Scrapes that come while one is rendered share the next one.

    Args:
        collector: of the fleet's metrics.
        gauges: this process's, brought up to date first.
    """

    def __init__(self, collector: ProxyCollector, gauges: Gauges) -> None:
        self._collector = collector
        self._gauges = gauges
        self._rendering = asyncio.Lock()
        self._begun = 0
        self._rendered: dict[str, tuple[int, bytes]] = {}

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The text, not older than the call, in the format that an `accept` header asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        begun_before = self._begun
        async with self._rendering:
            begun, text = self._rendered.get(content_type, (0, b""))
            if begun <= begun_before:
                self._begun += 1
                begun = self._begun
                await self._gauges.refresh_in_slices()
                text = b"".join(await in_slices(self._pieces(encode)))
                self._rendered = {content_type: (begun, text)}
        return text, content_type

    def _pieces(self, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
        name = ""
        ends = b""
        for part in self._collector.parts():
            if part is None:
                yield b""
                continue
            text = encode(_Only(part))
            if text.endswith(_END):
                ends = _END
                text = text.removesuffix(_END)
            if part.name == name:
                text = _without_head(text)
            name = part.name
            yield text
        yield ends


def _without_head(text: bytes) -> bytes:
    """What follows the lines that describe the family."""
    while text.startswith(b"# "):
        text = text[text.index(b"\n") + 1 :]
    return text
