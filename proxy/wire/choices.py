"""Several choices for one prompt (`n`, `best_of`), made by as many requests for one choice each. Pure.

A context worker's answer holds the KV cache of one sequence, so one hand-off cannot become several choices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.members import JSONBytes, Members, is_null, join_array, join_object, split_array, split_object
from proxy.wire.sse import DONE, data_of, event, with_data

_INTEGER = msgspec.json.Decoder(int)
_NO_LOGPROBS = (b"false", b"0", b"null")


class Wanted(NamedTuple):
    """How many choices a client wants.

    Attributes:
        shown: `n`.
        made: `best_of`, at least `n`: the most probable of them are shown.
        logprobs: the client wants log probabilities itself.
    """

    shown: int
    made: int
    logprobs: bool


def wanted_choices(members: Members) -> Wanted:
    """Read `n` and `best_of`.

    Raises:
        InvalidField: one of them is no whole number or below 1, or `best_of` is below `n`, or both differ in a stream.
    """
    shown = _count(members, "n", 1)
    made = _count(members, "best_of", shown)
    if made < shown:
        raise InvalidField("best_of", "best_of must not be less than n")
    if made > shown and bytes(members.get("stream", b"false")) == b"true":
        raise InvalidField("best_of", "best_of other than n cannot be streamed", code="unsupported_value")
    return Wanted(shown, made, bytes(members.get("logprobs", b"null")) not in _NO_LOGPROBS)


def _count(members: Members, name: str, default: int) -> int:
    value = members.get(name)
    if value is None or is_null(value):
        return default
    try:
        count = _INTEGER.decode(value)
    except msgspec.DecodeError:
        raise InvalidField(name, f"{name} must be an integer", code="invalid_type") from None
    if count < 1:
        raise InvalidField(name, f"{name} must be at least 1")
    return count


def members_for_one(members: Members, number: int, wanted: Wanted, *, chat: bool) -> Members:
    """The request for choice `number`, counted from 0.

    A seed is counted up, since with the same one all choices would be the same.
    """
    one = {name: value for name, value in members.items() if name not in ("n", "best_of")}
    if number and "seed" in one:
        with contextlib.suppress(msgspec.DecodeError):  # for the workers to refuse
            one["seed"] = msgspec.Raw(b"%d" % (_INTEGER.decode(one["seed"]) + number))
    if wanted.made > wanted.shown and not wanted.logprobs:
        one["logprobs"] = msgspec.Raw(b"true" if chat else b"1")
    return one


def merged_answer(answers: Sequence[bytes], wanted: Wanted) -> bytes:
    """One answer with the choices of all: the first answer's members, and the tokens of all in `usage`.

    Raises:
        MalformedJSON: one is no answer, or lacks the log probabilities by which the best are chosen.
    """
    split = [split_object(answer) for answer in answers]
    made = [_choices(members) for members in split]
    if not all(made):
        raise MalformedJSON("there are no choices")
    choices = list(chain.from_iterable(made))
    if wanted.made > wanted.shown:
        choices.sort(key=_mean_logprob, reverse=True)
        del choices[wanted.shown :]
        if not wanted.logprobs:
            for choice in choices:
                choice["logprobs"] = b"null"
    merged: dict[str, JSONBytes] = dict(split[0])
    merged["choices"] = join_array(
        join_object({**choice, "index": b"%d" % number}) for number, choice in enumerate(choices)
    )
    usages = [members["usage"] for members in split if not is_null(members.get("usage"))]
    if usages:
        merged["usage"] = merged_usage(usages)
    return join_object(merged)


def merged_usage(usages: Sequence[msgspec.Raw]) -> bytes:
    """The prompt of the first, the completions of all.

    Raises:
        MalformedJSON: one is no `usage`.
    """
    try:
        numbers = [_USAGE.decode(usage) for usage in usages]
    except msgspec.DecodeError as error:
        raise MalformedJSON(str(error)) from None
    completion = sum(usage.completion_tokens or 0 for usage in numbers)
    merged: dict[str, JSONBytes] = dict(split_object(bytes(usages[0])))
    merged["completion_tokens"] = b"%d" % completion
    merged["total_tokens"] = b"%d" % (numbers[0].prompt_tokens + completion)
    return join_object(merged)


class MergedStream:
    """The events of several streams as those of one.

    All carry the id and the time of the first event, their choices the number of their stream; usage comes once, at
    the end, and `[DONE]` behind it.
    """

    def __init__(self) -> None:
        self._common: dict[str, JSONBytes] | None = None
        self._usage: dict[str, JSONBytes] | None = None
        self._usages: list[msgspec.Raw] = []

    def event(self, number: int, event: bytes) -> bytes:
        """What takes the place of an event of stream `number`; nothing to drop it."""
        data = data_of(event)
        if data.strip() == b"[DONE]":
            return b""
        try:
            members: dict[str, JSONBytes] = dict(split_object(data))
            choices = _choices(members)
        except MalformedJSON:
            return event  # a comment, or an error of the worker's
        if self._common is None:
            self._common = {name: members[name] for name in ("id", "created") if name in members}
        members.update(self._common)
        usage = members.get("usage")
        if not choices and isinstance(usage, msgspec.Raw) and not is_null(usage):
            self._usages.append(usage)
            self._usage = self._usage or members
            return b""
        members["choices"] = join_array(join_object({**each, "index": b"%d" % number}) for each in choices)
        return with_data(event, join_object(members))

    def end(self) -> bytes:
        """The events behind the last one."""
        if self._usage is None:
            return DONE
        return event(join_object({**self._usage, "usage": merged_usage(self._usages)})) + DONE


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class _Token(msgspec.Struct):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None
    token_logprobs: list[float | None] | None = None


_USAGE = msgspec.json.Decoder(_Usage)
_LOGPROBS = msgspec.json.Decoder(_Logprobs)


def _choices(members: dict[str, JSONBytes] | Members) -> list[dict[str, JSONBytes]]:
    choices = members.get("choices")
    if choices is None:
        raise MalformedJSON("there are no choices")
    return [dict(split_object(bytes(choice))) for choice in split_array(bytes(choices))]


def _mean_logprob(choice: dict[str, JSONBytes]) -> float:
    """The log probability per token, by which OpenAI's API ranks for `best_of`."""
    try:
        found = _LOGPROBS.decode(choice.get("logprobs", b"null"))
    except msgspec.DecodeError:
        raise MalformedJSON("a choice has no log probabilities") from None
    numbers = [token.logprob for token in found.content or ()]
    numbers += [number for number in found.token_logprobs or () if number is not None]
    if not numbers:
        raise MalformedJSON("a choice has no log probabilities")
    return sum(numbers) / len(numbers)
