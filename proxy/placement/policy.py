"""What a placement policy is, and what it may know of the request that it places."""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proxy.placement.candidates import Candidates


class Needs(IntFlag):
    """What a policy wants to know of a request; nothing else is computed."""

    NOTHING = 0
    ID = 1
    """The key of the conversation that the client names."""
    PREFIX = 2
    """The key of the first messages."""
    PREFIX_WITHOUT_ID = 4
    """The key of the first messages where the client names no conversation."""
    TOKENS = 8
    """An estimate of the prompt's length."""


class Placement:
    """What the policies know of one request. Keys are 64-bit numbers, the same in every process.

    Attributes:
        id_key: of the conversation that the client names, or None.
        prefix_key: of the first messages, or None.
        tokens: estimated prompt tokens, 0 when no policy asks.
    """

    __slots__ = ("id_key", "prefix_key", "tokens")

    def __init__(self, id_key: int | None = None, prefix_key: int | None = None, tokens: int = 0) -> None:
        self.id_key = id_key
        self.prefix_key = prefix_key
        self.tokens = tokens


NO_PLACEMENT = Placement()
"""For requests of which no policy needs to know anything."""


class AffinityCounts:
    """How often requests with a key got their first choice (`hits`) or another worker because of load (`spills`), and
    how many had no key (`misses`)."""

    __slots__ = ("hits", "misses", "spills")

    def __init__(self) -> None:
        self.hits = 0
        self.spills = 0
        self.misses = 0


class Policy(Protocol):
    """Chooses one of the workers that are available. Keeps no state about requests: counts live in the load table."""

    @property
    def needs(self) -> Needs:
        """What it reads of a `Placement`."""
        ...

    @property
    def affinity(self) -> AffinityCounts | None:
        """Its counts, if it keeps conversations together."""
        ...

    def choose(self, candidates: Candidates, placement: Placement) -> int:
        """The position of one of the candidates, of which there is at least one. No IO, no `await`."""
        ...
