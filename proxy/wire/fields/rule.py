"""What a row of the field tables may do to a member. Each effect can say in words what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from proxy.wire.errors import InvalidField
from proxy.wire.fields.draft import Draft, decoded
from proxy.wire.members import equals, is_null

Route = Literal["both", "chat", "completions"]


class Effect(Protocol):
    """What is done to a member that is present and not null."""

    @property
    def text(self) -> str:
        """What it does, for the table that `disagg-proxy fields` prints."""
        ...

    def __call__(self, draft: Draft, name: str) -> None:
        """Do it.

        Raises:
            InvalidField: the request is refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a table.

    Attributes:
        field: name of the top-level member.
        effect: what becomes of it.
        why: the reason, for people.
        route: where the row holds.
        late: to be applied when all other members have got their final form.
    """

    field: str
    effect: Effect
    why: str = ""
    route: Route = "both"
    late: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Left out: no effect on the tokens produced."""

    text: str = "dropped"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        draft.drop(name)


@dataclass(frozen=True, slots=True)
class Ask:
    """The client wants something in its answer that the proxy may put there; see `proxy.lifecycle.wanted_ids`.

    Attributes:
        text: what becomes of it.
        keep: the workers are to see it too.
    """

    text: str
    keep: bool = False

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        if equals(draft.members[name], b"true"):
            draft.asked.append(name)
        if not self.keep:
            draft.drop(name)


@dataclass(frozen=True, slots=True)
class DropUnlessStrict:
    """Left out, unless unknown fields are to be refused: a mild effect on the answer."""

    text: str = "dropped; refused when unknown_fields is reject"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        if draft.unknown == "reject":
            draft.refuse(name, "is not supported by the workers")
        draft.drop(name)


@dataclass(frozen=True, slots=True)
class DropIf:
    """Left out when it asks for nothing, refused otherwise.

    Attributes:
        harmless: the values that ask for nothing.
        why: completes the sentence "<field> ..." of the refusal.
    """

    harmless: tuple[Any, ...]
    why: str

    @property
    def text(self) -> str:
        """See `Effect`."""
        return f"dropped when {_values(self.harmless)}, else refused: {self.why}"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        if not same(draft.value(name), self.harmless):
            draft.refuse(name, self.why)
        draft.drop(name)


@dataclass(frozen=True, slots=True)
class KeepUnless:
    """Left out when it has a value that other engines use for "off" and workers refuse."""

    off: tuple[Any, ...]

    @property
    def text(self) -> str:
        """See `Effect`."""
        return f"dropped when {_values(self.off)}, else kept"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        if same(draft.value(name), self.off):
            draft.drop(name)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused: the field would change the answer and workers have nothing like it."""

    why: str

    @property
    def text(self) -> str:
        """See `Effect`."""
        return f"refused: {self.why}"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        draft.refuse(name, self.why)


@dataclass(frozen=True, slots=True)
class Rename:
    """Another name for a field that workers accept."""

    to: str

    @property
    def text(self) -> str:
        """See `Effect`."""
        return f"renamed to {self.to}"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        draft.put(self.to, draft.take(name), source=name)


@dataclass(frozen=True, slots=True)
class Unpack:
    """An object of other fields: those that are known here become top-level members and get their own rules.

    Attributes:
        known: nested name -> top-level name, or None to drop it.
        others: what becomes of a nested name that is not listed: `refuse`, or `keep` its name.
    """

    known: Mapping[str, str | None]
    others: Literal["refuse", "keep"] = "refuse"

    @property
    def text(self) -> str:
        """See `Effect`."""
        if self.others == "keep":
            return "its members are taken as members of the request"
        taken = [
            inner if inner == outer else f"{inner} as {outer}" for inner, outer in self.known.items() if outer
        ]
        return f"taken from it: {', '.join(taken)}; other meaningful members are refused"

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        nested = draft.object(name)
        draft.take(name)
        for inner, value in nested.items():
            if is_null(value):
                continue
            outer = self.known.get(inner, inner if self.others == "keep" else "")
            if outer == "":
                draft.refuse(f"{name}.{inner}", "has no equivalent on the workers")
            if outer is None:
                draft.dropped.append(f"{name}.{inner}")
            elif outer == name:
                draft.refuse(f"{name}.{inner}", "is nested")
            else:
                draft.put(outer, value, source=f"{name}.{inner}")


@dataclass(frozen=True, slots=True)
class Translate:
    """Anything else, by a function.

    Attributes:
        function: called with the draft and the name.
        text: what it does.
    """

    function: Callable[[Draft, str], None]
    text: str

    def __call__(self, draft: Draft, name: str) -> None:
        """See `Effect`."""
        self.function(draft, name)


def same(value: Any, candidates: tuple[Any, ...]) -> bool:
    """Whether a decoded value is one of these; true is not 1, but 1.0 is."""
    return any(
        value == candidate and isinstance(value, bool) == isinstance(candidate, bool)
        for candidate in candidates
    )


def string(draft: Draft, name: str) -> str:
    """A member that has to be a string.

    Raises:
        InvalidField: it is something else.
    """
    value = decoded(draft.members[name], name)
    if not isinstance(value, str):
        raise InvalidField(name, f"{name} must be a string", code="invalid_type")
    return value


def boolean(draft: Draft, name: str) -> bool:
    """A member that has to be true or false.

    Raises:
        InvalidField: it is something else.
    """
    value = decoded(draft.members[name], name)
    if not isinstance(value, bool):
        raise InvalidField(name, f"{name} must be true or false", code="invalid_type")
    return value


def _values(values: tuple[Any, ...]) -> str:
    return " or ".join(str(msgspec.json.encode(value), "utf-8") for value in values)
