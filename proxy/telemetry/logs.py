"""Log output: human text or one JSON object per line, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import msgspec

from proxy.telemetry.log_handler import ACCESS, LogHandler
from proxy.telemetry.repeats import RepeatFilter


class JSONFormatter(logging.Formatter):
    """One object per line: time (seconds since the epoch), level, logger, message, and the record's `fields`.

    Args:
        process: index of the process in its fleet, put on each line; None when there is only one.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Called by the logging library."""
        line: dict[str, Any] = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if self._process is not None:
            line["process"] = self._process
        fields = getattr(record, "fields", None)
        if fields is None:
            line["message"] = record.getMessage()
        else:
            line.update(fields)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure_logging(
    level: str, style: Literal["text", "json"], *, access_log: bool, process: int | None = None
) -> None:
    """Set up the root logger; the libraries' own handlers are not used; repeated messages are rare.

    Args:
        level: name of a level, in any case.
        style: human text or JSON.
        access_log: whether each request gets a line.
        process: index of the process in its fleet, shown on each line; None when there is only one.
    """
    handler = LogHandler(sys.stderr, style, process)
    if style == "json":
        handler.setFormatter(JSONFormatter(process))
    else:
        mark = "" if process is None else f"[{process}] "
        handler.setFormatter(logging.Formatter(f"%(asctime)s {mark}%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(RepeatFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger(ACCESS).disabled = not access_log
    # httpx logs each probe at info.
    logging.getLogger("httpx").setLevel(logging.WARNING)
