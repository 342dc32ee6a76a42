"""A file with secrets that is read again when it changes, so that keys rotate without a restart."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from proxy.config.errors import ConfigError

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""The file is looked at this often at most, and only when it is asked for."""

_logger = logging.getLogger("proxy.config")


class WatchedFile(Generic[T]):
    """The meaning of a text file. A change that makes no sense is logged and leaves the last meaning in force.

    Args:
        path: where it is; may be a symbolic link that is exchanged, as Kubernetes does with secrets.
        parse: gives the text its meaning; raises `ValueError` with a sentence that quotes nothing of the text.
        key: the key of the configuration that names the file, for messages.
        clock: seconds, monotonic.

    Raises:
        ConfigError: the file cannot be read or makes no sense.
    """

    def __init__(
        self,
        path: str,
        parse: Callable[[str], T],
        *,
        key: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._parse = parse
        self._key = key
        self._clock = clock
        self._due = clock() + LOOK_SECONDS
        self._seen: tuple[int, ...] | None = None
        try:
            self._seen = self._mark()
            self._value = self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(_sentence(error), key=key, value=path) from None

    @property
    def value(self) -> T:
        """The meaning of the file, at most a second old."""
        now = self._clock()
        if now >= self._due:
            self._due = now + LOOK_SECONDS
            self._look()
        return self._value

    def _look(self) -> None:
        try:
            mark = self._mark()
            if mark == self._seen:
                return
            self._seen = mark
            self._value = self._read()
        except (OSError, ValueError) as error:
            _logger.error(
                "%s: %s: %s; what it said before stays in force", self._key, self._path, _sentence(error)
            )
        else:
            _logger.info("%s: %s has been read again", self._key, self._path)

    def _mark(self) -> tuple[int, ...]:
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev

    def _read(self) -> T:
        with open(self._path, encoding="utf-8-sig") as file:
            return self._parse(file.read())


def _sentence(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, UnicodeDecodeError):  # its text quotes the bytes
        return "is not UTF-8 text"
    return str(error)
