"""Keys with values and times to live: the HTTP cluster storage of `trtllm-serve disaggregated`, without HTTP."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Notify = Callable[["KeyChange"], None]

# The routes are open to the workers' network: what somebody else could fill has bounds. A worker takes one key.
MOST_KEYS = 8192
LONGEST_KEY = 1024
LONGEST_VALUE = 16 * 1024


class KeyChange(msgspec.Struct, frozen=True):
    """One key was set, or is gone.

    Attributes:
        key: which.
        value: its value, None when it was deleted or has expired.
    """

    key: str
    value: str | None


class _Item(msgspec.Struct):
    value: str
    ttl: float
    expires_at: float | None


class KeyStorage:
    """In memory. A key whose time is over is gone at once for whoever asks; watchers hear of it at the next `sweep`.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._items: dict[str, _Item] = {}
        self._watchers: dict[str, list[Notify]] = {}

    def set(
        self, key: str, value: str, *, ttl: float = -1, expire_time: float = -1, overwrite: bool = False
    ) -> bool:
        """Store a value; False, and nothing changes, when the key exists and must not be overwritten.

        A worker whose heartbeat got lost registers again with the key that it still has. Refusing that would keep it
        from sending heartbeats until the key has expired; so the same value is taken once half of the key's time has
        passed, which is when the first heartbeat is overdue.

        Args:
            key, value: at most `LONGEST_KEY` and `LONGEST_VALUE` characters.
            ttl: seconds; for ever when it is not positive.
            expire_time: when the key expires by the storage's clock, seconds; outdoes `ttl` unless it is negative.
            overwrite: also if the key exists.
        """
        if len(key) > LONGEST_KEY or len(value) > LONGEST_VALUE:
            return False
        now = self._clock()
        item = self._find(key)
        if item is not None and not overwrite and not _overdue(item, value, now):
            return False
        if item is None and len(self._items) >= MOST_KEYS:
            return False
        expires_at = expire_time if expire_time >= 0 else now + ttl if ttl > 0 else None
        self._items[key] = _Item(value, ttl, expires_at)
        self._tell(KeyChange(key, value))
        return True

    def get(self, key: str) -> str | None:
        """The value, None when there is none."""
        item = self._find(key)
        return item.value if item is not None else None

    def expire(self, key: str, ttl: float) -> bool:
        """Let a key live for `ttl` seconds from now on; False when it does not exist."""
        item = self._find(key)
        if item is None:
            return False
        item.ttl = ttl
        item.expires_at = self._clock() + ttl
        return True

    def delete(self, key: str) -> bool:
        """Remove a key; False when it does not exist."""
        if self._find(key) is None:
            return False
        self._remove(key)
        return True

    def get_prefix(self, prefix: str, *, keys_only: bool = False) -> dict[str, str]:
        """All keys that begin like this and their values; empty values if only the keys are wanted."""
        self.sweep()
        return {
            key: "" if keys_only else item.value
            for key, item in self._items.items()
            if key.startswith(prefix)
        }

    def watch(self, prefix: str, notify: Notify) -> Callable[[], None]:
        """Call `notify` for each change of a key that begins like this, within the call that makes the change.

        Returns:
            Ends the watch.
        """
        watchers = self._watchers.setdefault(prefix, [])
        watchers.append(notify)
        return lambda: watchers.remove(notify)

    def sweep(self) -> None:
        """Remove the keys whose time is over; to be called every second."""
        now = self._clock()
        for key, item in list(self._items.items()):
            if _is_over(item, now):
                self._remove(key)

    def _find(self, key: str) -> _Item | None:
        item = self._items.get(key)
        if item is not None and _is_over(item, self._clock()):
            self._remove(key)
            return None
        return item

    def _remove(self, key: str) -> None:
        del self._items[key]
        self._tell(KeyChange(key, None))

    def _tell(self, change: KeyChange) -> None:
        for prefix, watchers in self._watchers.items():
            if change.key.startswith(prefix):
                for notify in list(watchers):
                    notify(change)


def _is_over(item: _Item, now: float) -> bool:
    return item.expires_at is not None and item.expires_at <= now


def _overdue(item: _Item, value: str, now: float) -> bool:
    """Whether the worker behind a key has been silent for as long as no sound one is."""
    return item.value == value and item.expires_at is not None and item.expires_at - now <= item.ttl / 2
