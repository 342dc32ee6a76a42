"""Token counts of an answer of which one worker read the prompt and another one wrote the text.

A generation worker that is not told the context worker's `usage` (`ctx_usage`, which older versions do not know) counts
the whole prompt as cached, since its KV came ready-made, and counts it anew if it tokenises by itself. The client
gets the prompt's numbers from the context worker, those of the completion from the generation worker.
"""

from __future__ import annotations

import re

import msgspec

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import NULL, JSONBytes, join_object, split_object
from proxy.wire.sse import data_of, with_data

# Text cannot look like this: its quotes are escaped.
_usage_begins = re.compile(rb'"usage"[ \t]*:[ \t]*\{').search


class _Completion(msgspec.Struct):
    completion_tokens: int | None = None


class _Prompt(msgspec.Struct):
    prompt_tokens: int


_COMPLETION = msgspec.json.Decoder(_Completion)
_PROMPT = msgspec.json.Decoder(_Prompt)
_DETAILS = "prompt_tokens_details"


class ContextUsage:
    """Rewrites `usage`, in a whole answer and in the events of a stream that have one (see `proxy.wire.rewriting`).

    Args:
        prompt_tokens: of the prompt, as the context worker counted them.
        details: the encoded `prompt_tokens_details` of the context worker; null if it has none.
    """

    __slots__ = ("_details", "_prompt_tokens")

    def __init__(self, prompt_tokens: int, details: bytes) -> None:
        self._prompt_tokens = prompt_tokens
        self._details = details

    def answer(self, members: dict[str, JSONBytes]) -> None:
        """See `Rewriter`."""
        usage = members.get("usage")
        rewritten = None if usage is None else self._rewritten(bytes(usage))
        if rewritten is not None:
            members["usage"] = rewritten

    def event(self, event: bytes) -> bytes:
        """See `Rewriter`."""
        if _usage_begins(event) is None:
            return event
        try:
            members: dict[str, JSONBytes] = dict(split_object(data_of(event)))
        except MalformedJSON:
            return event
        self.answer(members)
        return with_data(event, join_object(members))

    def end(self) -> bytes:
        """See `Rewriter`."""
        return b""

    def _rewritten(self, usage: bytes) -> bytes | None:
        """The right counts, and whatever else the generation worker's `usage` has; None if it has no counts."""
        try:
            completion = _COMPLETION.decode(usage).completion_tokens
            members: dict[str, JSONBytes] = dict(split_object(usage))
        except (msgspec.DecodeError, MalformedJSON, RecursionError):
            return None
        members["prompt_tokens"] = b"%d" % self._prompt_tokens
        members["total_tokens"] = b"%d" % (self._prompt_tokens + (completion or 0))
        if _DETAILS in members or self._details != NULL:
            members[_DETAILS] = self._details
        return join_object(members)


def context_usage(usage: JSONBytes) -> ContextUsage | None:
    """From the context worker's encoded `usage`; None if it did not count."""
    text = bytes(usage)  # a copy: a slice would keep the whole answer alive
    try:
        details = split_object(text).get(_DETAILS, NULL)
        return ContextUsage(_PROMPT.decode(text).prompt_tokens, bytes(details))
    except (msgspec.DecodeError, MalformedJSON, RecursionError):
        return None
