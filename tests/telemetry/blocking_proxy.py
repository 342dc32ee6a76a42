"""The proxy, with 10 ms of work more before each leg as long as the file exists that the first argument names."""

import os
import sys
import time
from typing import Any

from proxy.cli import main
from proxy.lifecycle.service import Service

MARK = sys.argv.pop(1)
SECONDS = 0.01

_accepted = Service.accepted


def blocking(service: Service, worker: Any) -> Any:
    """`Service.accepted`, which both legs ask."""
    if os.path.exists(MARK):
        until = time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            pass
    return _accepted(service, worker)


Service.accepted = blocking  # type: ignore[method-assign]
sys.exit(main())
