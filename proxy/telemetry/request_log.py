"""One JSON object per request in files of a directory (`request_log_dir`): ids, workers, sizes, phases, outcome.

No contents, no keys. A request costs its place in a bounded queue; a thread does the rest a few times a second. What
does not fit into the queue, because the disk is too slow or full, is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import msgspec

from proxy.telemetry import names
from proxy.telemetry.access_log import QUIET, access_fields
from proxy.telemetry.series import Counter

if TYPE_CHECKING:
    from starlette.types import Scope

    from proxy.config.settings import ProxySettings
    from proxy.lifecycle.record import RequestRecord
    from proxy.telemetry.shared import MetricsRow

_MOST_WAITING = 16_384
_SECONDS = 0.2
# Written at once, and the most by which a file exceeds its size.
_LINES = 256
_logger = logging.getLogger("proxy.request_log")


class RequestLog:
    """The files of one process: `requests-<process>-<number>.jsonl`, numbers rising, the oldest deleted.

    Args:
        directory: made if it is not there.
        process: index of the process.
        row: for the count of what was dropped.
        most_bytes: of a file before the next one is begun.
        most_files: of this process.
        most_waiting: requests that may wait for the thread.

    Raises:
        OSError: the directory cannot be made or written.
    """

    def __init__(
        self,
        directory: Path,
        process: int,
        row: MetricsRow,
        *,
        most_bytes: int,
        most_files: int,
        most_waiting: int = _MOST_WAITING,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._prefix = f"requests-{process}-"
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._most_waiting = most_waiting
        self._dropped = Counter(row, names.REQUEST_LOG_DROPPED)
        self._waiting: deque[tuple[RequestRecord, str, float]] = deque()
        self._failing = False
        self._path = self._next_path()
        self._path.touch()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="request-log", daemon=True)
        self._thread.start()

    def settle(self, record: RequestRecord, scope: Scope) -> None:
        """Note a finished request."""
        if len(self._waiting) >= self._most_waiting:
            self._dropped.add(1)
        elif record.route not in QUIET:
            self._waiting.append((record, scope["method"], time()))

    def close(self) -> None:
        """Write what waits and end the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_SECONDS):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while self._waiting:
            lines = [self._waiting.popleft() for _ in range(min(_LINES, len(self._waiting)))]
            try:
                self._write(b"".join(_encoded(*line) for line in lines))
                self._failing = False
            except OSError as error:
                self._dropped.add(len(lines))
                if not self._failing:
                    self._failing = True
                    _logger.error("the request log cannot be written: %s", error)

    def _write(self, data: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(data)
            full = file.tell() >= self._most_bytes
        if full:
            self._path = self._next_path()
            files = sorted(self._own_files())
            for _, path in files[: max(0, len(files) + 1 - self._most_files)]:
                path.unlink(missing_ok=True)

    def _next_path(self) -> Path:
        last = max((number for number, _ in self._own_files()), default=0)
        return self._directory / f"{self._prefix}{last + 1}.jsonl"

    def _own_files(self) -> Iterator[tuple[int, Path]]:
        for path in self._directory.glob(f"{self._prefix}*.jsonl"):
            number = path.stem.removeprefix(self._prefix)
            if number.isdigit():
                yield int(number), path


def open_request_log(proxy: ProxySettings, process: int, row: MetricsRow) -> RequestLog | None:
    """The request log as configured, or None. Raises `OSError`."""
    if proxy.request_log_dir is None:
        return None
    return RequestLog(
        Path(proxy.request_log_dir),
        process,
        row,
        most_bytes=proxy.request_log_max_bytes,
        most_files=proxy.request_log_max_files,
    )


def _encoded(record: RequestRecord, method: str, ended: float) -> bytes:
    fields = {"ts": round(ended, 3), **access_fields(record, method), "model": record.model}
    return msgspec.json.encode(fields) + b"\n"
