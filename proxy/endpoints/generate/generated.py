"""What a completions answer or stream of a worker has told so far. Pure."""

from __future__ import annotations

import msgspec

from proxy.wire.errors import MalformedJSON


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] | None = None


class _Choice(msgspec.Struct):
    text: str = ""
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = 0


class Usage(msgspec.Struct):
    """The numbers that the shapes show."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose KV was there."""
        details = self.prompt_tokens_details
        return (details.cached_tokens or 0) if details is not None else 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: Usage | None = None


_COMPLETION = msgspec.json.Decoder(_Completion)


class Generated:
    """One choice, which grows with each event of a stream.

    Attributes:
        text: empty when the worker was asked for ids.
        token_ids: empty when it was asked for text.
        logprobs: one per token if they were asked for; None where the worker knows none.
        finish_reason, stop_reason: as the worker says; None before the end.
        usage: None before it was told.
        begun: a part of the choice has come.
    """

    def __init__(self) -> None:
        self.begun = False
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[float | None] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.usage: Usage | None = None

    def take(self, payload: bytes) -> None:
        """Add what an answer, or the data of an event, tells.

        Raises:
            MalformedJSON: it is no completions answer.
        """
        try:
            completion = _COMPLETION.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedJSON(str(error)) from None
        self.usage = completion.usage or self.usage
        if not completion.choices:
            return
        self.begun = True
        choice = completion.choices[0]
        self.text += choice.text
        self.token_ids += choice.token_ids or ()
        if choice.logprobs is not None:
            self.logprobs += choice.logprobs.token_logprobs or ()
        self.finish_reason = choice.finish_reason or self.finish_reason
        self.stop_reason = self.stop_reason if choice.stop_reason is None else choice.stop_reason

    def logprob(self, position: int) -> float | None:
        """Of a token, None if it is not known."""
        return self.logprobs[position] if position < len(self.logprobs) else None

    @property
    def completion_tokens(self) -> int:
        """As the worker counts, or the ids that have come."""
        told = self.usage.completion_tokens if self.usage is not None else None
        return told or len(self.token_ids)
