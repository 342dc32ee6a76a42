"""Calls to the cluster storage as they travel to the process that holds it: plain JSON values in and out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.workers.discovery.key_storage import KeyStorage

STORAGE = "cluster_storage"
"""The command that carries a call."""


class StorageCalls:
    """Carries them out.

    Args:
        storage: of this process.
    """

    def __init__(self, storage: KeyStorage) -> None:
        self._operations: dict[str, Callable[..., Any]] = {
            "set": storage.set,
            "get": storage.get,
            "delete": storage.delete,
            "expire": storage.expire,
            "get_prefix": storage.get_prefix,
        }

    async def run(self, arguments: Any) -> Any:
        """The command: `operation` is a method of `KeyStorage`, all else are its arguments."""
        given = dict(arguments)
        return self._operations[given.pop("operation")](**given)
