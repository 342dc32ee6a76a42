"""The requests that a worker saw, for tests to look at."""

from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.sim.faults import Leg


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request to an inference route (with its ``leg``), or to one of those for trainers.

    ``body`` is None when it was too large to keep.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    size: int
    leg: Leg | None

    def json(self) -> Any:
        """The body, parsed (from msgpack when its header says so)."""
        if self.header("x-trtllm-msgpack") == "1":
            return msgspec.msgpack.decode(self.body or b"")
        return msgspec.json.decode(self.body or b"null")

    def header(self, name: str) -> str | None:
        """The first value of a header, by lower-case name."""
        return next((value for key, value in self.headers if key == name), None)
