"""Apply the field tables to one request. The order of the members is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import CLIENT_TOKEN_IDS, WITHOUT_EFFECT, Accepted
from proxy.wire.fields.draft import Draft, Unknown
from proxy.wire.fields.engines import HAND_OFF_NAMES
from proxy.wire.fields.messages import messages_are_plain, messages_rule
from proxy.wire.fields.own import FieldRule, OwnRules
from proxy.wire.fields.rule import Rule, same
from proxy.wire.fields.tables import ANYWHERE, NEUTRAL, Dialect, rules_of
from proxy.wire.members import NULL, Members, as_view, is_null

# Names travel in a response header and as metric labels, so only ordinary ones do, and only so many.
_ORDINARY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_NAMES = 20
_OTHER = "other"
_MESSAGES = {"messages"}


class Applied(NamedTuple):
    """What is left of a request, the names that were dropped, and those of what is wanted in the answer."""

    members: Members
    dropped: tuple[str, ...]
    asked: tuple[str, ...] = ()


class Options(msgspec.Struct, frozen=True):
    """What the configuration says about fields.

    Attributes:
        dialect: what the workers are.
        unknown: what becomes of fields that neither the workers nor the tables know.
        accept_prompt_token_ids: clients may send the prompt as token ids.
        developer_as_system: models whose chat templates know no role `developer`.
        rules: the operator's own.
    """

    dialect: Dialect = "trtllm"
    unknown: Unknown = "drop"
    accept_prompt_token_ids: bool = False
    developer_as_system: frozenset[str] = frozenset()
    rules: tuple[FieldRule, ...] = ()


class FieldPolicy:
    """The field rules of one route.

    Args:
        accepted: what all workers of the pool accept.
        chat: the route.
        options: from the configuration.
        some: further members, which only some workers accept; to be left out of the legs of the others.

    null means unset on the OpenAI wire, but several worker fields refuse it: null members are left out. Members
    without a rule are kept if the workers accept them. The others: see `_refuse_or_drop`.
    """

    def __init__(
        self,
        accepted: Accepted,
        *,
        chat: bool,
        options: Options | None = None,
        some: frozenset[str] = frozenset(),
    ) -> None:
        self._options = options = options or Options()
        self._chat = chat
        self._accepted = accepted
        route = accepted.of_route(chat=chat) | some
        self._takes_ids = options.accept_prompt_token_ids and chat
        self._route = route | {"prompt_token_ids"} if self._takes_ids else route
        self._strips = options.dialect == "trtllm"
        self._own = OwnRules(options.rules, chat=chat)
        self._rules = rules_of(options.dialect, chat=chat)
        if self._strips and chat:
            self._rules["messages"] = messages_rule(options.developer_as_system)
        self._plain = self._route - self._rules.keys() - CLIENT_TOKEN_IDS
        self._reasoning = accepted.reasoning_in_messages
        self._has_short_way = self._strips and not (options.developer_as_system or self._own.rules)
        self._never = HAND_OFF_NAMES | CLIENT_TOKEN_IDS

    @property
    def rules(self) -> Iterable[Rule]:
        """The built-in rules in force."""
        return self._rules.values()

    @property
    def route(self) -> frozenset[str]:
        """The members that may be sent."""
        return self._route

    @property
    def tells_conversations(self) -> bool:
        """Whether workers are to be told the conversation that a client names in its own way."""
        return self._options.dialect != "passthrough"

    @property
    def takes_conversation_params(self) -> bool:
        """Whether they are told by the member `conversation_params`."""
        return not self._strips or "conversation_params" in self._route

    def apply(self, members: Members) -> Applied:
        """Sort the members of a request; they themselves are not changed, and returned if nothing is to be done.

        Raises:
            InvalidField: token ids from a client that may not send them, or a field that must not be dropped.
        """
        if self._has_short_way and self._are_plain(members):
            return Applied(members, ())
        if self._strips:
            kept = {name: value for name, value in members.items() if as_view(value) != NULL}
        else:
            kept = dict(members)
        draft = Draft(
            kept, chat=self._chat, accepted=self._accepted, route=self._route, unknown=self._options.unknown
        )
        if self._own.rules:
            self._own.apply(draft)
            draft.waiting.clear()
        if self._strips:
            self._translate(draft)
        else:
            self._check(draft)
        return Applied(draft.members, tuple(draft.dropped), tuple(draft.asked))

    def _are_plain(self, members: Members) -> bool:
        """Whether all members are sent as they are, which is so for most requests."""
        others = members.keys() - self._plain
        if others and (others != _MESSAGES or not self._chat):
            return False
        if NULL in map(as_view, members.values()):
            return False
        return not others or messages_are_plain(members["messages"], reasoning=self._reasoning)

    def _translate(self, draft: Draft) -> None:
        members, rules, plain, route = draft.members, self._rules, self._plain, self._route
        waiting, late = [name for name in members if name not in plain], []
        while waiting or draft.waiting:
            # What a rule has put in is looked at like the client's own.
            names, draft.waiting = [*waiting, *draft.waiting], []
            waiting = []
            for name in names:
                if name not in members or name in plain:
                    continue
                rule = rules.get(name)
                if rule is not None:
                    if rule.late:
                        late.append(rule)
                        continue
                    rule.effect(draft, name)
                if name in members and (name not in route or name in CLIENT_TOKEN_IDS):
                    self._refuse_or_drop(draft, name)
        for rule in late:
            if rule.field in members:
                rule.effect(draft, rule.field)
                if rule.field in members and rule.field not in route:
                    self._refuse_or_drop(draft, rule.field)

    def _check(self, draft: Draft) -> None:
        """For workers that take anything: only what is refused or never passes."""
        for name in [name for name in draft.members if name in self._rules or name in CLIENT_TOKEN_IDS]:
            if name in CLIENT_TOKEN_IDS:
                self._check_token_ids(draft, name)
            elif not is_null(draft.members[name]) or name in HAND_OFF_NAMES:
                self._rules[name].effect(draft, name)

    def _refuse_or_drop(self, draft: Draft, name: str) -> None:
        """Decide about a member that is not accepted here.

        Raises:
            InvalidField: it means something that would be lost, or unknown fields are refused.
        """
        if name in CLIENT_TOKEN_IDS:
            self._check_token_ids(draft, name)
        elif name in WITHOUT_EFFECT:
            draft.drop(name)
        elif name in ANYWHERE:
            if not same(draft.value(name), NEUTRAL.get(name, ())):
                draft.refuse(name, "is not supported on this route or by this version of the workers")
            draft.drop(name)
        elif draft.forbid(name):
            draft.drop(name)

    def _check_token_ids(self, draft: Draft, name: str) -> None:
        if is_null(draft.members[name]) or (self._takes_ids and name == "prompt_token_ids"):
            return
        if self._takes_ids and not self._strips:
            return
        message = (
            f"{name} is not accepted from clients here (accept_prompt_token_ids is off)"
            if self._chat
            else f"{name} is not a field of this route; pass the token ids as prompt"
        )
        raise InvalidField(name, message, code="unsupported_field")


def ordinary(dropped: Iterable[str]) -> tuple[str, ...]:
    """The names for metrics and the response header, each once; unprintable or overlong ones, and those beyond a
    limit, become one `other`."""
    names = list(dict.fromkeys(dropped))
    kept = [name for name in names if _ORDINARY_NAME.fullmatch(name)][:_MOST_NAMES]
    if len(kept) < len(names):
        kept.append(_OTHER)
    return tuple(kept)


def header_value(dropped: tuple[str, ...]) -> bytes:
    """The names for the response header."""
    return ",".join(ordinary(dropped)).encode()
