"""Workers that a file lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from proxy.config.discovery.file import FileEntry
from proxy.config.errors import ConfigError
from proxy.config.listed_worker import ListedWorker
from proxy.config.values import Entry
from proxy.config.worker_list import read_worker_list
from proxy.config.yaml_file import parse_yaml
from proxy.workers.discovery.source import SourceLost

# A file that is being written in place may be valid and half: it is used once it reads the same after this time.
_SETTLE_SECONDS = 0.2


class FileSource:
    """See `proxy.workers.discovery.source.Source`.

    The file is read at each look and its bytes are compared: times and sizes miss a change that follows another one
    within a tick of the clock, and links that are exchanged, as Kubernetes does with a ConfigMap, need no care.

    Args:
        entry: the file.
        sleep: waits for some seconds.
    """

    def __init__(
        self, entry: FileEntry, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.name = entry.name
        self.longest_pause = entry.interval
        self._path = entry.path
        self._interval = entry.interval
        self._sleep = sleep
        self._seen: bytes | None = None
        self._listed: Sequence[ListedWorker] = ()
        self._mistake: str | None = None

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`."""
        while True:
            content = await asyncio.to_thread(self._read)
            while content != self._seen:
                await self._sleep(_SETTLE_SECONDS)
                again = await asyncio.to_thread(self._read)
                if again == content:
                    await asyncio.to_thread(self._understand, content)
                content = again
            if self._mistake is not None:
                raise SourceLost(self._mistake)
            yield self._listed
            await self._sleep(self._interval)

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                return file.read()
        except OSError as error:
            raise SourceLost(f"{self._path}: cannot be read: {error.strerror or error}") from None

    def _understand(self, content: bytes) -> None:
        """Parse in a thread: long lists take some tenths of a second."""
        self._seen = content
        self._mistake = None
        try:
            self._listed = _parse(content, self._path)
        except ConfigError as error:
            self._mistake = str(error)
        except UnicodeDecodeError:
            self._mistake = f"{self._path}: is not UTF-8 text"


def _parse(content: bytes, path: str) -> Sequence[ListedWorker]:
    document = parse_yaml(content.decode("utf-8-sig"), origin=path)
    if document is None:
        # The moment between truncating and writing looks like this.
        raise ConfigError('is empty; a list without workers is "[]"', origin=path)
    return read_worker_list("workers", Entry(document, path))
