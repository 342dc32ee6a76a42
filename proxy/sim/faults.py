"""Fault switches: what a worker does wrong, how often, and to which requests."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

Leg = Literal["context", "generation", "aggregated"]
Route = Literal["inference", "health", "rl_control", "any"]
When = Literal["connection", "worker", "answer"]

# kind: (what it acts on, what happens). Fields that a kind reads are named in its text.
KINDS: dict[str, tuple[When, str]] = {
    # the whole worker
    "refuse": (
        "worker",
        "the listener is closed and open connections are reset, for `seconds` or until cleared",
    ),
    "starting": (
        "worker",
        "every path answers 503 with the start-up gate's headers, for `seconds` or until cleared",
    ),
    # a connection
    "accept_hang": ("connection", "accepts the connection and never reads from it"),
    "accept_reset": ("connection", "resets the connection as soon as it is accepted"),
    "reset_reused": ("connection", "resets a kept-alive connection when its next request arrives"),
    # instead of the answer
    "status": ("answer", "answers `status` with `body`, `content_type`, `retry_after` and `headers`"),
    "hang": ("answer", "reads the request and never answers, or answers after `seconds`"),
    "reset": ("answer", "reads the request and resets the connection"),
    "disconnect": ("answer", "reads the request and closes the connection without an answer"),
    "garbage": ("answer", "sends bytes that are not HTTP and closes"),
    "null_body": ("answer", "answers 200 with the JSON body null"),
    # before the answer
    "slow_first_byte": ("answer", "waits `seconds` before the status line"),
    "informational": ("answer", "sends a `status` (default 103) answer before the real one"),
    "oversized_headers": ("answer", "adds a header of `size` bytes (default 131072)"),
    # within the answer
    "truncated_json": ("answer", "sends the first half of the JSON text as a complete answer"),
    "cut": (
        "answer",
        "ends the connection after `after_events` events, `inside` the next one, `with_reset`; JSON: in its middle",
    ),
    "sse_error": ("answer", "after `after_events` events sends an error event and [DONE]"),
    "stall": ("answer", "after `after_events` events stops, for `seconds` or for ever"),
    "not_sse": ("answer", "answers a stream request with 200 and JSON"),
    "chunk_extensions": ("answer", "adds an extension to each chunk size line"),
    "trailers": ("answer", "adds trailer fields after the last chunk"),
    # after the answer
    "close": ("answer", "closes after the answer and says so in a Connection header"),
    "close_silently": ("answer", "closes after the answer without a Connection header"),
    "unsolicited": ("answer", "sends a second answer that nobody asked for"),
    # what the answer says
    "missing_handoff": ("answer", "context leg: `handoff` = absent, null or null_ids"),
    "missing_ids": ("answer", "context leg: the prompt's token ids are null"),
    "finish": (
        "answer",
        "context leg: ends with `finish_reason` and holds no KV; `handoff` = null_ids nulls the ids",
    ),
}


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One switch. ``count`` None means until cleared; ``skip`` lets so many matching requests pass first."""

    kind: str
    count: int | None = None
    skip: int = 0
    leg: Leg | None = None
    route: Route = "inference"
    status: int = 0
    body: str | None = None
    content_type: str = "application/json"
    retry_after: int | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    after_events: int = 1
    inside: bool = False
    with_reset: bool = False  # cut: RST in place of FIN
    seconds: float | None = None
    size: int = 131_072
    handoff: Literal["absent", "null", "null_ids"] | None = None
    finish_reason: str | None = "stop"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; known: {', '.join(KINDS)}")

    def copy(self) -> "Fault":
        """Another switch with its own count."""
        return msgspec.structs.replace(self)


FaultLike = Fault | Mapping[str, Any]


def as_fault(fault: FaultLike) -> Fault:
    """A switch from itself or from a mapping of its fields. Raises `ValueError` for unknown ones."""
    return fault.copy() if isinstance(fault, Fault) else msgspec.convert(dict(fault), Fault)


def read_faults(body: bytes) -> list[Fault]:
    """Switches from JSON: one object or a list of them. Raises `ValueError`."""
    parsed = msgspec.json.decode(body)
    return [as_fault(item) for item in (parsed if isinstance(parsed, list) else [parsed])]


class FaultBoard:
    """The switches of one worker that are on."""

    def __init__(self, faults: Iterable[FaultLike] = ()) -> None:
        self.faults: list[Fault] = [as_fault(fault) for fault in faults]

    def add(self, fault: FaultLike) -> Fault:
        """Switch one on."""
        added = as_fault(fault)
        self.faults.append(added)
        return added

    def clear(self, kind: str | None = None) -> None:
        """Switch all off, or all of a kind."""
        self.faults = [fault for fault in self.faults if kind is not None and fault.kind != kind]

    def remove(self, fault: Fault) -> None:
        """Switch this very one off, if it is still on."""
        self.faults = [other for other in self.faults if other is not fault]

    def has(self, kind: str) -> bool:
        """Whether a switch of this kind is on; does not use it up."""
        return any(fault.kind == kind for fault in self.faults)

    def take_kind(self, kind: str) -> Fault | None:
        """Use up one occurrence of a connection's fault."""
        for fault in self.faults:
            if fault.kind == kind:
                return fault if self._use(fault) else None
        return None

    def take_answer(self, route: str, leg: str | None) -> tuple[Fault, ...]:
        """Use up the faults that apply to this request's answer."""
        if not self.faults:
            return ()
        return tuple(
            fault
            for fault in list(self.faults)
            if KINDS[fault.kind][0] == "answer"
            and fault.route in (route, "any")
            and fault.leg in (leg, None)
            and self._use(fault)
        )

    def _use(self, fault: Fault) -> bool:
        if fault.skip > 0:
            fault.skip -= 1
            return False
        if fault.count is not None:
            if fault.count <= 0:
                return False
            fault.count -= 1
            if fault.count == 0:
                self.remove(fault)
        return True
