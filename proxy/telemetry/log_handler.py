"""Writes log output. Access lines, one per request, go past the logging library, which takes longer than a whole
request's metrics, and are written several at a time."""

from __future__ import annotations

import asyncio
import logging
import select
from collections import deque
from time import localtime, strftime, time
from typing import Any, Literal, TextIO

import msgspec

ACCESS = "proxy.access"
"""The logger whose lines these are."""

# Lines of several processes that share a pipe do not mix in pieces of up to this size (pipe(7)).
_MOST_BYTES = select.PIPE_BUF
_SECONDS = 0.02  # that a line waits for others at most
_encode = msgspec.json.Encoder().encode


class LogHandler(logging.StreamHandler[TextIO]):
    """A handler that takes access lines too. Order is kept: what waits is written before any other record.

    Args:
        stream: where to write.
        style: human text or JSON.
        process: index of the process in its fleet, put on each line; None when there is only one.
    """

    def __init__(self, stream: TextIO, style: Literal["text", "json"], process: int | None = None) -> None:
        super().__init__(stream)
        self._text = style == "text"
        self._head: dict[str, Any] = {"level": "info", "logger": ACCESS}
        if process is not None:
            self._head["process"] = process
        self._mark = "" if process is None else f"[{process}] "
        self._second = 0
        self._prefix = ""
        self._lines: deque[str] = deque()
        self._bytes = 0

    def access(self, fields: dict[str, Any]) -> None:
        """Write a line soon; to be called in one thread."""
        now = time()
        if self._text:
            line = f"{self._start(now)} {' '.join([f'{name}={value}' for name, value in fields.items()])}\n"
        else:
            line = _encode({"ts": round(now, 3), **self._head, **fields}).decode() + "\n"
        size = len(line) if line.isascii() else len(line.encode())
        if self._bytes + size > _MOST_BYTES:
            self.write_lines()
        first = not self._lines
        self._lines.append(line)
        self._bytes += size
        if first:
            self._write_soon()

    def _start(self, now: float) -> str:
        """As `logging.Formatter` begins a line."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._prefix = strftime("%Y-%m-%d %H:%M:%S", localtime(second))
        return f"{self._prefix},{int(now * 1000) % 1000:03d} {self._mark}INFO {ACCESS}:"

    def _write_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.write_lines()
        else:
            loop.call_later(_SECONDS, self.write_lines)

    def write_lines(self) -> None:
        """Write the access lines that wait."""
        self.acquire()
        try:
            lines = []
            while self._lines:
                lines.append(self._lines.popleft())
            self._bytes = 0
            if lines:
                self._write("".join(lines))
        finally:
            self.release()

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except Exception:
            self.handleError(logging.makeLogRecord({"name": ACCESS, "msg": "access lines"}))

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the logging library."""
        self.write_lines()
        super().emit(record)

    def close(self) -> None:
        """Called by the logging library, at the latest when the program ends."""
        self.write_lines()
        super().close()
