"""The KV that context workers hold for generation workers: taken once, or expired."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DEFAULT_SECONDS = 60.0  # TensorRT-LLM's `kv_transfer_timeout_ms` is 60000 by default
REMEMBERED_IDS = 65_536


class HandoffError(ValueError):
    """No such KV, or it was taken already; the worker answers 400 with its error envelope."""


@dataclass(slots=True)
class Handoff:
    """KV of one prompt on one context worker."""

    worker: str
    request_id: int
    prompt_digest: str
    prompt_tokens: int
    first_tokens: tuple[int, ...]
    expires: float  # the registry's clock, seconds
    taken: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The form in which it travels to a generation worker of another process."""
        return {
            "worker": self.worker,
            "disagg_request_id": self.request_id,
            "prompt_digest": self.prompt_digest,
            "prompt_tokens": self.prompt_tokens,
            "first_gen_tokens": list(self.first_tokens),
        }


@dataclass(slots=True)
class KvCounts:
    """How hand-offs ended, for one worker or all of them."""

    held: int = 0
    stored: int = 0
    taken: int = 0
    expired: int = 0
    refused: int = 0  # takes of unknown, taken or expired KV

    def as_dict(self) -> dict[str, int]:
        """For ``GET /sim/stats``."""
        return {
            "held": self.held,
            "stored": self.stored,
            "taken": self.taken,
            "expired": self.expired,
            "refused": self.refused,
        }


class KvRegistry:
    """All hand-offs of the workers of one process. Reads from other threads are safe."""

    def __init__(self, seconds: float = DEFAULT_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._lock = threading.RLock()
        self._held: OrderedDict[tuple[str, int], Handoff] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._counts: dict[str, KvCounts] = {}

    def register(self, worker: str) -> None:
        """Make a worker known as one of this process."""
        self._counts.setdefault(worker, KvCounts())

    def knows(self, worker: str) -> bool:
        """Whether the worker's KV is held here."""
        return worker in self._counts

    def claim(self, request_id: int) -> None:
        """Refuse an id that a context leg has used before (each attempt needs a new one)."""
        with self._lock:
            if request_id in self._seen:
                raise HandoffError(f"disagg_request_id {request_id} is already in use")
            self._seen[request_id] = None
            if len(self._seen) > REMEMBERED_IDS:
                self._seen.popitem(last=False)

    def hold(
        self,
        worker: str,
        request_id: int,
        prompt_digest: str,
        prompt_tokens: int,
        first_tokens: tuple[int, ...],
    ) -> Handoff:
        """Keep KV until it is taken or expires."""
        with self._lock:
            self._expire()
            handoff = Handoff(
                worker, request_id, prompt_digest, prompt_tokens, first_tokens, self._clock() + self.seconds
            )
            self._held[(worker, request_id)] = handoff
            counts = self._counts[worker]
            counts.held += 1
            counts.stored += 1
            return handoff

    def take(self, worker: str, request_id: int) -> Handoff:
        """Hand the KV over, once. Raises `HandoffError` when it is not there."""
        with self._lock:
            self._expire()
            handoff = self._held.pop((worker, request_id), None)
            counts = self._counts.setdefault(worker, KvCounts())
            if handoff is None:
                counts.refused += 1
                raise HandoffError(f"no KV cache for disagg_request_id {request_id} on {worker}")
            counts.held -= 1
            counts.taken += 1
            handoff.taken = True
            return handoff

    def peek(self, worker: str, request_id: int) -> bool:
        """Whether the KV is there now."""
        with self._lock:
            self._expire()
            return (worker, request_id) in self._held

    def counts(self, worker: str | None = None) -> KvCounts:
        """A copy of the counts of one worker, or the sum over all workers."""
        with self._lock:
            self._expire()
            chosen = list(self._counts.values()) if worker is None else [self._counts.get(worker, KvCounts())]
            return KvCounts(
                held=sum(counts.held for counts in chosen),
                stored=sum(counts.stored for counts in chosen),
                taken=sum(counts.taken for counts in chosen),
                expired=sum(counts.expired for counts in chosen),
                refused=sum(counts.refused for counts in chosen),
            )

    @property
    def leftover(self) -> int:
        """Hand-offs that nobody took: still held, or expired."""
        counts = self.counts()
        return counts.held + counts.expired

    def held_ids(self, worker: str | None = None) -> list[int]:
        """The request ids whose KV is held now."""
        with self._lock:
            self._expire()
            return [request_id for name, request_id in self._held if worker in (None, name)]

    def _expire(self) -> None:
        # All entries live equally long, so the oldest comes first.
        now = self._clock()
        while self._held:
            key, handoff = next(iter(self._held.items()))
            if handoff.expires > now:
                return
            del self._held[key]
            counts = self._counts[handoff.worker]
            counts.held -= 1
            counts.expired += 1
