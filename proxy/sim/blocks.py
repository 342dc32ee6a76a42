"""Block hashes of prompts and the KV events that follow from them.

Only whole runs of tokens before the last prompt token are hashed; the last partial block is hashed too.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any

_MASK = (1 << 64) - 1
_MASK32 = (1 << 32) - 1
ROOT_V2 = hashlib.sha256(b"\x00").digest()  # one mask byte: no LoRA, no cache salt


def mix32(value: int, seed: int) -> int:
    """TensorRT-LLM's 32-bit hash step of ``v1_block_key``."""
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK32
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _MASK32
    value = (((value >> 16) ^ value) + 0x9E3779B9) & _MASK32
    return (seed ^ (value + (seed << 6) + (seed >> 2))) & _MASK


def mix64(value: int, seed: int) -> int:
    """TensorRT-LLM's 64-bit hash step of ``v1_block_key``; used for the cache salt."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    value ^= value >> 31
    return (seed ^ (value + 0x9E3779B9 + (seed << 6) + (seed >> 2))) & _MASK


def salt_id(salt: str) -> int:
    """The number that stands for a ``cache_salt``."""
    return int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8], "little")


def _runs(tokens: list[int], size: int) -> Iterator[list[int]]:
    last = len(tokens) - 1
    for start in range(0, last, size):
        yield tokens[start : min(start + size, last)]


def block_hashes(
    tokens: list[int], size: int, algorithm: str = "v1_block_key", salt: str | None = None
) -> list[int | str]:
    """The chained hashes of a prompt's blocks: integers, or hex text for ``v2_sha256``."""
    if algorithm == "v1_block_key":
        return list(_v1(tokens, size, None if salt is None else salt_id(salt)))
    key = ROOT_V2 if salt is None else hashlib.sha256(b"\x02" + struct.pack("<Q", salt_id(salt))).digest()
    hashes: list[int | str] = []
    for run in _runs(tokens, size):
        key = hashlib.sha256(key + struct.pack(f"<{len(run)}Q", *run)).digest()
        hashes.append(key.hex() if algorithm == "v2_sha256" else int.from_bytes(key[:8], "big"))
    return hashes


def _v1(tokens: list[int], size: int, salt: int | None) -> Iterator[int]:
    parent = 0
    for run in _runs(tokens, size):
        seed = len(run) ^ ((parent * 0xBF58476D1CE4E5B9) & _MASK)
        if parent == 0 and salt is not None:
            seed = mix64(salt, seed)
        for token in run:
            seed = mix32(token, seed)
        parent = seed
        yield parent


class BlockCache:
    """The blocks of one worker; prompts that share a prefix find it, and each new block makes an event."""

    MOST_EVENTS = 65_536  # older events are lost, as with the real event buffer

    def __init__(self, size: int, algorithm: str) -> None:
        self.size = size
        self.algorithm = algorithm
        self._known: set[int | str] = set()
        self._events: deque[dict[str, Any]] = deque(maxlen=self.MOST_EVENTS)
        self._next_event = 0
        self._emit({"type": "created", "num_blocks_per_cache_level": [1024, 0]})

    def add(self, tokens: list[int], salt: str | None = None) -> int:
        """Store a prompt's blocks; returns how many of its tokens were cached already."""
        cached = 0
        parent: int | str | None = None
        new: list[dict[str, Any]] = []
        for number, value in enumerate(block_hashes(tokens, self.size, self.algorithm, salt)):
            run = tokens[number * self.size : min((number + 1) * self.size, len(tokens) - 1)]
            if value in self._known:
                if not new:
                    cached += len(run)
                    parent = value
                continue
            self._known.add(value)
            new.append(
                {
                    "type": "stored_block",
                    "block_hash": value,
                    "tokens": [
                        {"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in run
                    ],
                    "cache_level": 0,
                    "priority": 35,
                }
            )
        if new:
            self._emit({"type": "stored", "parent_hash": parent, "blocks": new})
        return cached

    def clear(self) -> None:
        """Evict everything."""
        if self._known:
            self._emit({"type": "removed", "block_hashes": sorted(self._known, key=str)})
        self._known.clear()

    def drain(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        events = list(self._events)
        self._events.clear()
        return events

    def _emit(self, data: dict[str, Any]) -> None:
        self._events.append({"event_id": self._next_event, "data": data, "window_size": 4096})
        self._next_event += 1
