"""Event streams, framed byte for byte as workers do.

Chat: one role event per choice, which has a space before its blank line; nulls are left out, ``reasoning_content`` is
an empty string rather than absent. Completions: nulls are shown. Then an optional usage event and ``[DONE]``.
"""

import time
from collections.abc import Sequence

import msgspec

from proxy.sim.answer import VOCABULARY, Answer
from proxy.sim.inference import Inference, Usage
from proxy.sim.logprobs import chat_logprobs, completion_logprobs
from proxy.sim.shapes import echoed_text

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.encode
_PIECES: dict[str, bytes] = {piece: _encode(piece) for piece in VOCABULARY}


def _json(text: str) -> bytes:
    return _PIECES.get(text) or _encode(text)


class EventStream:
    """Builds the events of one answer.

    ``first_logprob`` is the replayed token's; ``engine_id`` is part of the stream's id.
    """

    def __init__(
        self,
        inference: Inference,
        answers: Sequence[Answer],
        model: str,
        usage: Usage,
        *,
        engine_id: int,
        first_logprob: float = 0.0,
    ) -> None:
        self._inference = inference
        self._answers = answers
        self._usage = usage
        self._first_logprob = first_logprob
        self._sent = 0  # tokens so far, over all choices
        kind = (b"chatcmpl", b"chat.completion.chunk") if inference.chat else (b"cmpl", b"text_completion")
        self._head = b'data: {"id":"%b-%d","object":"%b","created":%d,"model":%b,"choices":[' % (
            kind[0],
            engine_id,
            kind[1],
            int(time.time()),
            _encode(model),
        )
        self._plain = [
            self._head + b'{"index":%d,%b' % (index, b'"delta":{"content":' if inference.chat else b'"text":')
            for index in range(len(answers))
        ]
        self._plain_end = (
            b',"reasoning_content":""}}]}\n\n'
            if inference.chat
            else b"," + _completion_end(b"null") + b"\n\n"
        )
        self._is_plain = [
            inference.logprobs is None
            and not inference.shows_ids
            and not inference.continuous_usage
            and inference.body.get("detokenize", True)
            and answer.tool_name is None
            for answer in answers
        ]

    def opening(self) -> list[bytes]:
        """Role events (chat), and the echoed text if there is one."""
        if not self._inference.chat:
            return []
        events = []
        for index in range(len(self._answers)):
            usage = b',"usage":' + self._usage.encode(0) if self._inference.continuous_usage else b""
            events.append(
                b'%b{"index":%d,"delta":{"role":"assistant"}}]%b} \n\n' % (self._head, index, usage)
            )
            echoed = echoed_text(self._inference)
            if echoed:
                events.append(self._plain[index] + _json(echoed) + self._plain_end)
        return events

    def token(self, index: int, position: int) -> bytes:
        """The event of one output token of one choice."""
        answer = self._answers[index]
        self._sent += 1
        if (
            self._is_plain[index]
            and position >= answer.reasoning_tokens
            and position + 1 < len(answer.token_ids)
        ):
            return self._plain[index] + _json(answer.pieces[position]) + self._plain_end
        if self._inference.chat:
            return self._chat_event(answer, index, position)
        return self._completion_event(answer, index, position)

    def _chat_event(self, answer: Answer, index: int, position: int) -> bytes:
        parts = [self._head, b'{"index":%d,"delta":' % index, _chat_delta(answer, position)]
        if self._inference.logprobs is not None:
            here = range(position, position + 1)
            named = self._inference.names_ids
            shown = chat_logprobs(answer, here, self._inference.logprobs, self._first_logprob, named=named)
            parts += [b',"logprobs":', _encode(shown)]
        if self._inference.shows_ids:
            parts.append(b',"token_ids":[%d]' % answer.token_ids[position])
        if position + 1 == len(answer.token_ids):
            parts.append(b',"finish_reason":"%b"' % answer.finish_reason.encode())
            if answer.stop_reason is not None:
                parts += [b',"stop_reason":', _encode(answer.stop_reason)]
        parts.append(b"}]")
        if self._inference.continuous_usage:
            parts += [b',"usage":', self._usage.encode(self._sent)]
        parts.append(b"}\n\n")
        return b"".join(parts)

    def _completion_event(self, answer: Answer, index: int, position: int) -> bytes:
        plain_text = self._inference.body.get("detokenize", True)
        last = position + 1 == len(answer.token_ids)
        logprobs = b"null"
        if self._inference.logprobs is not None:
            here = range(position, position + 1)
            shown = completion_logprobs(answer, here, self._inference.logprobs, self._first_logprob)
            logprobs = _encode(shown)
        end = _completion_end(
            self._usage.encode(self._sent) if self._inference.continuous_usage else b"null",
            token_ids=b"null"
            if plain_text and not self._inference.shows_ids
            else b"[%d]" % answer.token_ids[position],
            logprobs=logprobs,
            finish_reason=_encode(answer.finish_reason) if last else b"null",
            stop_reason=_encode(answer.stop_reason) if last else b"null",
        )
        text = _json(answer.pieces[position]) if plain_text else b'""'
        return b"%b%b,%b\n\n" % (self._plain[index], text, end)

    def closing(self) -> bytes:
        """The end of the stream."""
        return DONE

    def usage_event(self) -> bytes:
        """The event with the whole usage and no choices."""
        return b'%b],"usage":%b}\n\n' % (self._head, self._usage.encode(self._sent))


def _chat_delta(answer: Answer, position: int) -> bytes:
    piece = _json(answer.pieces[position])
    if answer.tool_name is not None:
        if position == 0:
            return (
                b'{"content":"","reasoning_content":"","tool_calls":[{"id":%b,"index":0,"type":"function",'
                b'"function":{"name":%b,"arguments":""}}]}'
                % (_encode(answer.tool_id), _encode(answer.tool_name))
            )
        return b'{"tool_calls":[{"index":0,"function":{"arguments":%b}}]}' % piece
    if position < answer.reasoning_tokens:
        return b'{"content":"","reasoning_content":%b}' % piece
    return b'{"content":%b,"reasoning_content":""}' % piece


def _completion_end(
    usage: bytes,
    *,
    token_ids: bytes = b"null",
    logprobs: bytes = b"null",
    finish_reason: bytes = b"null",
    stop_reason: bytes = b"null",
) -> bytes:
    return (
        b'"token_ids":%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"avg_decoded_tokens_per_iter":null}],'
        b'"usage":%b}' % (token_ids, logprobs, finish_reason, stop_reason, usage)
    )
