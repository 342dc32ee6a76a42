"""What a simulated worker answers: a pure function of the prompt's token ids and the request's fields.

Tests call `expected_answers` with the client's body and compare every byte of what came through the proxy.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from proxy.sim.instance import DEFAULT_OBJECT, instance_of
from proxy.sim.tokens import content_text, prompts_of, seed_of

Finish = Literal["stop", "length", "tool_calls"]

# Text in the last chat message, or in a text prompt, that switches a behaviour on.
MARKER_CONTEXT_STOP = "[sim:context-stop]"  # the context worker finishes the request by itself
MARKER_TOOL = "[sim:tool]"  # call the first tool even with tool_choice auto
MARKER_THINK = "[sim:think]"  # start with reasoning

# fmt: off
_WORDS = (
    "the", "quick", "brown", "fox", "über", "lazy", "dog", "sprang", "nach", "Köln", "and", "drank", "café", "crème",
    "while", "東京", "日本", "語", "🙂", "tells", "stories", "of", "naïve", "stars", "façade", "piñata", "señor",
    "wind", "ñandú", "Ελλάδα", "Москва", "снег", "שלום", "سلام", "नमस्ते", "안녕", "river", "stone", "light", "cloud",
    "ember", "north", "south", "winter", "summer", "paper", "glass", "iron", "copper", "silver", "golden",
    "quiet", "loud",
)
# fmt: on
VOCABULARY: tuple[str, ...] = tuple(
    f" {word}" if index < len(_WORDS) else f" {word}{index // len(_WORDS)}"
    for index, word in ((i, _WORDS[i % len(_WORDS)]) for i in range(256))
)
FIRST_WORD_ID = 1_000  # token id of VOCABULARY[0]
WORD_IDS = range(FIRST_WORD_ID, FIRST_WORD_ID + len(VOCABULARY))
STRUCTURED_ID = 50_000  # ids of pieces of JSON text lie in [STRUCTURED_ID, STRUCTURED_ID + 20_000)
STRUCTURED_PIECE = 6  # characters per token of JSON text
NATURAL_LENGTH = (8, 25)  # shortest answer without a budget, and how many lengths there are
REASONING_TOKENS = 4
MOST_TOKENS = 65_536  # per choice, whatever the budget says
IGNORE_EOS_TOKENS = 256  # with ignore_eos but without a budget


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the answer makes; ``arguments`` is JSON text (cut short when the budget ran out)."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice. ``pieces`` and ``token_ids`` have one entry per output token, the first included."""

    pieces: tuple[str, ...]
    token_ids: tuple[int, ...]
    finish_reason: Finish
    stop_reason: str | int | None = None
    reasoning_tokens: int = 0
    tool_name: str | None = None
    tool_id: str | None = None

    @property
    def reasoning(self) -> str:
        """The reasoning text: the first ``reasoning_tokens`` pieces."""
        return "".join(self.pieces[: self.reasoning_tokens])

    @property
    def text(self) -> str:
        """The text of the answer after the reasoning; empty when a tool is called."""
        return "" if self.tool_name is not None else "".join(self.pieces[self.reasoning_tokens :])

    @property
    def tool_call(self) -> ToolCall | None:
        """The tool call, if the answer is one."""
        if self.tool_name is None or self.tool_id is None:
            return None
        return ToolCall(self.tool_id, self.tool_name, "".join(self.pieces))


@dataclass(frozen=True, slots=True)
class Wishes:
    """The fields of a request that shape the answer."""

    budget: int | None
    choices: int
    ignore_eos: bool
    min_tokens: int
    stops: tuple[str, ...]
    stop_ids: frozenset[int]
    keep_stop: bool
    thinking: bool
    context_stop: bool
    tool: Mapping[str, Any] | None
    structured: str | None  # the JSON text to answer with
    seed: int


def wishes_of(body: Mapping[str, Any]) -> Wishes:
    """Read them from a completions or chat body."""
    budget = body.get("max_completion_tokens")
    if budget is None:
        budget = body.get("max_tokens")
    stop = body.get("stop") or ()
    marked = marked_text(body)
    return Wishes(
        budget=None if budget is None else int(budget),
        choices=int(body.get("n", 1)),
        ignore_eos=bool(body.get("ignore_eos")),
        min_tokens=int(body.get("min_tokens", 0)),
        stops=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_ids=frozenset(body.get("stop_token_ids") or ()),
        keep_stop=bool(body.get("include_stop_str_in_output")),
        thinking="messages" in body and _is_thinking(body, marked),
        context_stop=MARKER_CONTEXT_STOP in marked,
        tool=_tool_of(body, marked) if "messages" in body else None,
        structured=_structured_text(body.get("response_format")),
        seed=int(body.get("seed") or 0),
    )


def marked_text(body: Mapping[str, Any]) -> str:
    """Where markers are looked for: the last message (it survives stripping), or a text prompt."""
    messages = body.get("messages")
    if messages:
        return content_text(messages[-1].get("content"))
    prompt = body.get("prompt")
    return prompt if isinstance(prompt, str) else ""


def _is_thinking(body: Mapping[str, Any], marked: str) -> bool:
    options = body.get("chat_template_kwargs") or {}
    if "enable_thinking" in options:
        return bool(options["enable_thinking"])
    thinking = body.get("thinking")
    if thinking:
        return bool(thinking.get("type") == "enabled")
    return MARKER_THINK in marked


def _tool_of(body: Mapping[str, Any], marked: str) -> Mapping[str, Any] | None:
    tools: Sequence[Mapping[str, Any]] = body.get("tools") or ()
    if not tools:
        return None
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, dict):
        wanted = choice["function"]["name"]
        for tool in tools:
            if tool["function"]["name"] == wanted:
                return tool
        return None
    return tools[0] if choice == "required" or (choice == "auto" and MARKER_TOOL in marked) else None


def _structured_text(response_format: Mapping[str, Any] | None) -> str | None:
    if not response_format:
        return None
    kind = response_format["type"]
    if kind == "json_object":
        return _json_text(DEFAULT_OBJECT)
    if kind in ("json_schema", "json"):
        outer = response_format.get("json_schema") or {}
        schema = response_format.get("schema") or outer.get("schema") or outer
        return _json_text(instance_of(schema))
    return None


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def natural_length(seed: int) -> int:
    """How many tokens an answer has when neither a budget nor ``ignore_eos`` decides."""
    shortest, lengths = NATURAL_LENGTH
    return shortest + (seed >> 16) % lengths


def words(seed: int, count: int, choice: int) -> tuple[list[str], list[int]]:
    """Plain text: ``count`` pieces and their ids.

    The first token depends on the prompt only, so that one hand-off serves all choices.
    """
    start, stride = seed & 255, ((seed >> 8) | 1) + 2 * choice
    places = [(start + stride * position) & 255 for position in range(count)]
    return [VOCABULARY[place] for place in places], [FIRST_WORD_ID + place for place in places]


def _split_text(text: str) -> tuple[list[str], list[int]]:
    pieces = [text[at : at + STRUCTURED_PIECE] for at in range(0, len(text), STRUCTURED_PIECE)] or [""]
    return pieces, [STRUCTURED_ID + zlib.crc32(piece.encode()) % 20_000 for piece in pieces]


def answers(packed_ids: bytes, wishes: Wishes) -> list[Answer]:
    """The choices that follow from a prompt (int32 bytes) and the request's fields."""
    # As with a real sampler, the same seed gives the same answer and another one gives another.
    seed = seed_of(packed_ids) ^ (wishes.seed & 0xFFFF)
    return [_answer(seed, wishes, choice) for choice in range(wishes.choices)]


def _answer(seed: int, wishes: Wishes, choice: int) -> Answer:
    most = MOST_TOKENS if wishes.budget is None else min(wishes.budget, MOST_TOKENS)
    if wishes.tool is not None:
        function = wishes.tool["function"]
        arguments = _json_text(instance_of(function.get("parameters") or {"type": "object"}))
        pieces, ids = _split_text(arguments)
        # The first token opens the call (its name); the arguments follow it.
        pieces, ids = ["", *pieces], [STRUCTURED_ID + zlib.crc32(function["name"].encode()) % 20_000, *ids]
        finish: Finish = "tool_calls" if len(ids) <= most else "length"
        return Answer(
            tuple(pieces[:most]),
            tuple(ids[:most]),
            finish,
            tool_name=function["name"],
            tool_id=f"chatcmpl-tool-{seed:08x}{choice:04x}",
        )
    if wishes.structured is not None:
        pieces, ids = _split_text(wishes.structured)
        finish = "stop" if len(ids) <= most else "length"
        return Answer(tuple(pieces[:most]), tuple(ids[:most]), finish)
    if wishes.ignore_eos:
        count = most if wishes.budget is not None else IGNORE_EOS_TOKENS
        finish = "length"
    else:
        natural = max(natural_length(seed), wishes.min_tokens)
        count = min(natural, most)
        finish = "stop" if natural <= most else "length"
    pieces, ids = words(seed, count, choice)
    thinking = min(REASONING_TOKENS, count) if wishes.thinking else 0
    answer = Answer(tuple(pieces), tuple(ids), finish, reasoning_tokens=thinking)
    if wishes.stops or wishes.stop_ids:
        answer = _stopped(answer, wishes)
    return answer


def _stopped(answer: Answer, wishes: Wishes) -> Answer:
    """End the answer at the first stop token or stop text of its content, whichever comes first."""
    lengths = [len(piece) for piece in answer.pieces[answer.reasoning_tokens :]]
    ends: list[tuple[int, int, str | int]] = []  # (tokens generated, characters of content kept, reason)
    for position, token in enumerate(answer.token_ids):
        if token in wishes.stop_ids:
            whole = max(0, position - answer.reasoning_tokens + wishes.keep_stop)
            ends.append((position + 1, sum(lengths[:whole]), token))
            break
    text = answer.text
    found = [(text.find(stop), stop) for stop in wishes.stops if stop and stop in text]
    if found:
        at, stop = min(found)
        generated = answer.reasoning_tokens + _tokens_until(lengths, at + len(stop))
        ends.append((generated, at + len(stop) * wishes.keep_stop, stop))
    if not ends:
        return answer
    generated, kept, reason = min(ends, key=lambda end: end[:2])
    return replace(
        answer,
        pieces=tuple(_trim(answer.pieces[:generated], answer.reasoning_tokens, kept)),
        token_ids=answer.token_ids[:generated],
        finish_reason="stop",
        stop_reason=reason,
        reasoning_tokens=min(answer.reasoning_tokens, generated),
    )


def _tokens_until(lengths: Sequence[int], characters: int) -> int:
    seen = 0
    for position, length in enumerate(lengths):
        seen += length
        if seen >= characters:
            return position + 1
    return len(lengths)


def _trim(pieces: Sequence[str], reasoning_tokens: int, characters: int) -> list[str]:
    trimmed = list(pieces[:reasoning_tokens])
    for piece in pieces[reasoning_tokens:]:
        trimmed.append(piece[:characters])
        characters -= len(trimmed[-1])
    return trimmed


def context_answer(answer: Answer) -> Answer:
    """What a context worker shows of an answer that it finishes by itself: the first token."""
    return replace(
        answer,
        pieces=answer.pieces[:1],
        token_ids=answer.token_ids[:1],
        finish_reason="stop",
        stop_reason=None,
        reasoning_tokens=min(1, answer.reasoning_tokens),
        # The tool parser sees no call in the first token yet.
        tool_name=None,
        tool_id=None,
    )


def expected_answers(body: Mapping[str, Any]) -> list[Answer]:
    """The choices that a client gets for its completions or chat body, over all prompts in order.

    With two legs or one, streamed or not, the answer is the same.
    """
    wishes = wishes_of(body)
    result = [answer for prompt in prompts_of(body) for answer in answers(prompt, wishes)]
    return [context_answer(answer) for answer in result] if wishes.context_stop else result


def expected_text(body: Mapping[str, Any], choice: int = 0) -> str:
    """The content text of one choice; see `expected_answers`."""
    return expected_answers(body)[choice].text
