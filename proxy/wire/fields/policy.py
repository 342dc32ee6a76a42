"""Apply the field tables to one request. The order of the members is kept."""

import re
from typing import NamedTuple

from proxy.wire.errors import InvalidField
from proxy.wire.fields.accepted import CHAT, CLIENT_TOKEN_IDS, COMPLETIONS
from proxy.wire.members import NULL, Members, equals, is_null
from proxy.wire.versions import WorkerVersion

# Names travel in a response header and as metric labels, so only ordinary ones do, and only so many.
_ORDINARY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOST_NAMES = 20


class Applied(NamedTuple):
    """What is left of a request and the names that were dropped."""

    members: Members
    dropped: tuple[str, ...]


class FieldPolicy:
    """The field rules of one route.

    * `max_completion_tokens` and `max_tokens` are one field to the workers, which refuse both at once: the
      former wins, as in OpenAI's API. Completions know only `max_tokens`.
    * null means unset on the OpenAI wire, but several worker fields refuse it: null members are left out.
    * `stream_options` without `stream: true` is refused by workers: dropped.
    * members that the worker version does not know are dropped and named.
    """

    def __init__(self, version: WorkerVersion, *, chat: bool, accept_prompt_token_ids: bool = False) -> None:
        self._chat = chat
        self._accept_token_ids = accept_prompt_token_ids and chat
        accepted = (CHAT if chat else COMPLETIONS)[version]
        self._accepted = accepted | {"prompt_token_ids"} if self._accept_token_ids else accepted

    def apply(self, members: Members) -> Applied:
        """Sort the members of a request.

        Raises:
            InvalidField: token ids from a client that may not send them, or a field that must not be dropped.
        """
        accepted = self._accepted
        kept = {name: value for name, value in members.items() if name in accepted and not is_null(value)}
        dropped: list[str] = []
        if len(kept) != len(members):
            dropped = self._sort_others(members, kept)
        if "max_completion_tokens" in kept and "max_tokens" in kept:
            kept["max_tokens"] = kept.pop("max_completion_tokens")
        if "stream_options" in kept and not equals(kept.get("stream", NULL), b"true"):
            del kept["stream_options"]
            dropped.append("stream_options")
        return Applied(kept, tuple(dropped))

    def _sort_others(self, members: Members, kept: Members) -> list[str]:
        dropped: list[str] = []
        for name, value in members.items():
            if name in self._accepted or is_null(value):
                continue
            if name in CLIENT_TOKEN_IDS:
                self._take_token_ids(name, kept, members)
            elif name == "max_completion_tokens":
                kept["max_tokens"] = value
            else:
                dropped.append(name)
        return dropped

    def _take_token_ids(self, name: str, kept: Members, members: Members) -> None:
        if not self._accept_token_ids:
            message = (
                f"{name} is not accepted from clients here (accept_prompt_token_ids is off)"
                if self._chat
                else f"{name} is not a field of this route; pass the token ids as prompt"
            )
            raise InvalidField(name, message, code="unsupported_field")
        kept.setdefault("prompt_token_ids", members[name])


def header_value(dropped: tuple[str, ...]) -> bytes:
    """The names for the response header; unprintable or overlong ones, and those beyond a limit, count as `other`."""
    ordinary = [name for name in dropped if _ORDINARY_NAME.fullmatch(name)][:_MOST_NAMES]
    if len(ordinary) < len(dropped):
        ordinary.append("other")
    return ",".join(ordinary).encode()
