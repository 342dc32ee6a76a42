"""Token ids in answers, as vLLM writes them and NeMo Gym, verl and others read them.

Chat: `prompt_token_ids` at the top, `token_ids` in each choice. Completions: both in each choice, and the prompt's at
the top too, where NeMo Gym looks for them. Of a stream the first event with choices has the prompt's ids, and each
event those of its tokens. The ids of prompt and answer come together or not at all: with one alone NeMo Gym fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from proxy.wire.errors import MalformedJSON, WireError
from proxy.wire.members import (
    NULL,
    JSONBytes,
    equals,
    first_byte,
    is_null,
    join_array,
    join_object,
    split_array,
    split_object,
)
from proxy.wire.sse import data_of, with_data
from proxy.wire.token_ids import array_of_base64

Text = Callable[[list[int]], str]
"""From ids to their text."""

Choice = dict[str, JSONBytes]

_QUOTE = b'"'[0]
_PREFIX = "token_id:"
_UNFINISHED = "\ufffd"
_IDS = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]])
_encode = msgspec.json.encode


class _Token(msgspec.Struct):
    token: str


class _ChatLogprobs(msgspec.Struct):
    content: list[_Token]


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    top_logprobs: list[dict[str, msgspec.Raw]] | None = None


_CHAT_LOGPROBS = msgspec.json.Decoder(_ChatLogprobs)
_LOGPROBS = msgspec.json.Decoder(_Logprobs)


class GrowingText:
    """The text of ids that come bit by bit. What may be the beginning of a character waits for the rest.

    Args:
        text: of ids.
    """

    __slots__ = ("_ids", "_shown", "_text")

    def __init__(self, text: Text) -> None:
        self._text = text
        # The last ones that were shown, since the text of the next one may depend on them, and newer ones.
        self._ids: list[int] = []
        self._shown = 0

    def add(self, ids: list[int], *, last: bool = False) -> str:
        """The text that these ids complete; of the last ones all that is left."""
        self._ids += ids
        whole = self._text(self._ids)
        if whole.endswith(_UNFINISHED) and not last:
            return ""
        new = whole[len(self._text(self._ids[: self._shown])) :]
        del self._ids[: self._shown]
        self._shown = len(self._ids)
        return new


class ReplyIds:
    """Puts ids into an answer (see `proxy.wire.rewriting`).

    Args:
        prompt_ids: encoded, as the hand-off has them; None if they are not known.
        chat: the route.
        show: put the ids in.
        as_tokens: name the tokens of a completion's log probabilities `token_id:N`.
        text: makes the text of completions, which the worker has left out; None if it has not.
    """

    __slots__ = ("_as_tokens", "_chat", "_first", "_ids", "_known", "_show", "_text", "_texts")

    def __init__(
        self, prompt_ids: bytes | None, *, chat: bool, show: bool, as_tokens: bool, text: Text | None
    ) -> None:
        self._ids = prompt_ids
        self._chat = chat
        self._show = show
        self._as_tokens = as_tokens
        self._text = text
        self._texts: dict[bytes, GrowingText] = {}
        self._first = True
        self._known = False  # of a stream: the prompt's ids have been shown

    def answer(self, members: dict[str, JSONBytes]) -> None:
        """See `Rewriter`."""
        choices = _choices(members)
        if choices is None:
            return
        ids = [self._ids_of(choice) for choice in choices]
        prompt = None if None in ids else self._prompt_ids()
        for choice, own in zip(choices, ids, strict=True):
            if self._text is not None and own is not None:
                choice["text"] = _encode(self._text(own))
            self._dress(choice, own, show=prompt is not None)
        if prompt is not None:
            self._add_prompt(members, choices, prompt)
        members["choices"] = join_array(map(join_object, choices))

    def event(self, event: bytes) -> bytes:
        """See `Rewriter`."""
        try:
            members: dict[str, JSONBytes] = dict(split_object(data_of(event)))
        except MalformedJSON:
            return event  # [DONE], or a comment
        choices = _choices(members)
        if not choices:
            return event
        first, self._first = self._first, False
        if first and (prompt := self._prompt_ids()) is not None:
            self._known = True
            self._add_prompt(members, choices, prompt)
            self._ids = None  # a stream can last for hours
        for choice in choices:
            own = self._ids_of(choice)
            if self._text is not None and (own is not None or equals(choice.get("text", b""), b'""')):
                choice["text"] = _encode(self._next_text(choice, own or []))
            self._dress(choice, own, show=self._known)
        members["choices"] = join_array(map(join_object, choices))
        return with_data(event, join_object(members))

    def end(self) -> bytes:
        """See `Rewriter`."""
        return b""

    def _ids_of(self, choice: Choice) -> list[int] | None:
        """The ids of a choice's tokens: as the worker tells them, or out of the names in its log probabilities."""
        try:
            if not is_null(choice.get("token_ids")):
                return _IDS.decode(choice["token_ids"])
            if self._chat and not is_null(choice.get("logprobs")):
                tokens = [each.token for each in _CHAT_LOGPROBS.decode(choice["logprobs"]).content]
                if tokens and all(token.startswith(_PREFIX) for token in tokens):
                    return [int(token.removeprefix(_PREFIX)) for token in tokens]
        except (msgspec.MsgspecError, ValueError):
            pass
        return None

    def _dress(self, choice: Choice, ids: list[int] | None, *, show: bool) -> None:
        if ids is not None and self._as_tokens and not is_null(choice.get("logprobs")):
            choice["logprobs"] = _named_by_ids(choice["logprobs"], ids)
        if show and ids is not None:
            choice["token_ids"] = _encode(ids)
        elif "token_ids" in choice and (self._show or self._text is not None):
            choice["token_ids"] = NULL  # without the prompt's, or only asked for to make the text

    def _next_text(self, choice: Choice, ids: list[int]) -> str:
        index = bytes(choice.get("index", b"0"))
        text = self._texts.get(index)
        if text is None:
            assert self._text is not None  # noqa: S101 - for the type checker
            text = self._texts[index] = GrowingText(self._text)
        return text.add(ids, last=not is_null(choice.get("finish_reason")))

    def _prompt_ids(self) -> bytes | None:
        """As an array; None when they are not to be shown."""
        if not self._show or self._ids is None:
            return None
        try:
            return array_of_base64(self._ids) if first_byte(self._ids) == _QUOTE else self._ids
        except WireError:
            return None

    def _add_prompt(self, members: dict[str, JSONBytes], choices: list[Choice], prompt: bytes) -> None:
        members["prompt_token_ids"] = prompt
        if not self._chat:
            for choice in choices:
                choice["prompt_token_ids"] = prompt


def _choices(members: dict[str, JSONBytes]) -> list[Choice] | None:
    """The choices of an answer or an event, each split; None when there is nothing of that form."""
    try:
        return [dict(split_object(bytes(each))) for each in split_array(bytes(members["choices"]))]
    except (KeyError, MalformedJSON):
        return None


def _named_by_ids(logprobs: JSONBytes, ids: list[int]) -> JSONBytes:
    """A completion's log probabilities with `token_id:N` in place of text.

    Of the alternatives only the chosen token's id is known: where it is the only one, it is named so too.
    """
    try:
        members: dict[str, Any] = dict(split_object(bytes(logprobs)))
        found = _LOGPROBS.decode(logprobs)
    except (msgspec.MsgspecError, MalformedJSON):
        return logprobs
    if len(found.tokens) != len(ids):
        return logprobs
    names = [f"{_PREFIX}{each}" for each in ids]
    members["tokens"] = _encode(names)
    top = found.top_logprobs
    if top is not None and len(top) == len(ids) and all(len(each) == 1 for each in top):
        members["top_logprobs"] = _encode(
            [
                dict.fromkeys((name,), value)
                for name, each in zip(names, top, strict=True)
                for value in each.values()
            ]
        )
    return join_object(members)
