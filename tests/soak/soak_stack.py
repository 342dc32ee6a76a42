"""What the long tests ask of proxies and workers in other processes."""

import re
import time
from typing import Any

import httpx
from e2e_processes import Processes, Proxy
from program import eventually

QUIET = {"access_log": False}
_SAMPLE = re.compile(r"^disagg_proxy_(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class SoakStack:
    """A proxy and its workers."""

    def __init__(
        self,
        processes: Processes,
        *sim: str,
        context: int = 2,
        generation: int = 2,
        workers: int = 1,
        **proxy: Any,
    ) -> None:
        self.sim = processes.sim(*sim, context=context, generation=generation)
        self.urls = [address for _, address in processes.workers]
        self.proxy: Proxy = processes.serve(processes.config({**QUIET, **proxy}, num_workers=workers))
        eventually(lambda: self.proxy.metric("processes") == workers, what="all processes")
        eventually(lambda: self.proxy.metric("ready") == 1, what="readiness of all")
        self.port = self.proxy.port
        self.program = self.proxy.program

    def outcomes(self) -> dict[str, int]:
        """Finished inference requests by outcome."""
        counts: dict[str, int] = {}
        for name, labels, value in _SAMPLE.findall(self.proxy.get("/metrics").text):
            found = dict(_LABEL.findall(labels))
            if name == "requests_total" and found["route"].endswith("completions"):
                counts[found["outcome"]] = counts.get(found["outcome"], 0) + int(float(value))
        return {outcome: count for outcome, count in counts.items() if count}

    def wait_idle(self, seconds: float = 20.0) -> None:
        """Until no request and no leg is left."""
        deadline = time.monotonic() + seconds
        names = ("requests_in_flight", "worker_in_flight", "orphan_legs", "admitted_requests")
        while True:
            busy = {name: self.proxy.metric(name) for name in names}
            busy["requests_in_flight"] -= 1  # the scrape itself
            busy["connections"] = self.proxy.metric("worker_connections", state="busy")
            if not any(count > 0 for count in busy.values()):
                return
            assert time.monotonic() < deadline, f"still running after {seconds} s: {busy}"
            time.sleep(0.1)

    def kv(self) -> dict[str, int]:
        """How the workers' hand-offs ended, all together."""
        totals: dict[str, int] = {}
        stats = httpx.get(f"http://{self.urls[0]}/sim/stats/all", trust_env=False).json()
        for worker in stats.values():
            for name, count in worker["kv"].items():
                totals[name] = totals.get(name, 0) + count
        return totals

    def orphans(self) -> dict[str, int]:
        """Hand-offs without a client, by what became of them."""
        text = self.proxy.get("/metrics").text
        found = (
            (dict(_LABEL.findall(labels)), value)
            for name, labels, value in _SAMPLE.findall(text)
            if name == "orphans_total"
        )
        return {labels["outcome"]: int(float(value)) for labels, value in found if float(value)}

    def errors(self) -> list[str]:
        """What the proxy logged at error level."""
        return [line for line in self.program.err.splitlines() if " ERROR " in line or "Traceback" in line]
