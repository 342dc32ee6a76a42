"""Log output: human text or one JSON object per line, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import msgspec


class JSONFormatter(logging.Formatter):
    """One object per line: time (seconds since the epoch), level, logger, message, and the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """Called by the logging library."""
        line: dict[str, Any] = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "fields", None)
        if fields is None:
            line["message"] = record.getMessage()
        else:
            line.update(fields)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure_logging(level: str, style: Literal["text", "json"], *, access_log: bool) -> None:
    """Set up the root logger; the libraries' own handlers are not used."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JSONFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("proxy.access").disabled = not access_log
    # httpx logs each probe at info.
    logging.getLogger("httpx").setLevel(logging.WARNING)
