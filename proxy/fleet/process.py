"""Where a process of the fleet begins: `python -m proxy.fleet.process DESCRIPTOR`, started by the supervisor only."""

from __future__ import annotations

import signal
import sys

import uvloop

from proxy.fleet.handover import Handover
from proxy.fleet.member import FleetMember
from proxy.serve import serve
from proxy.telemetry.logs import configure_logging


def main() -> int:
    """Serve until the supervisor says so, it ends, or a signal comes; returns the exit code."""
    # The supervisor reads the configuration again and tells the result.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handover = Handover.read(int(sys.argv[1]))
    proxy = handover.settings.proxy
    configure_logging(proxy.log_level, proxy.log_format, access_log=proxy.access_log, process=handover.index)
    uvloop.run(_serve(handover))
    return 0


async def _serve(handover: Handover) -> None:
    await serve(handover.settings, member=FleetMember(handover))


if __name__ == "__main__":
    sys.exit(main())
