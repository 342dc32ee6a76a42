"""Log-probabilities: made up from the token id, so that tests can compute them."""

from collections.abc import Sequence
from typing import Any

from proxy.sim.answer import Answer

UNKNOWN = -9999.0  # the first token's, when a generation leg was not given the context worker's


def logprob_of(token_id: int) -> float:
    """The log-probability of a token: a multiple of 1/64 in (-1, 0]."""
    return -(token_id % 64) / 64


def first_logprobs(token_id: int) -> list[list[dict[str, Any]]]:
    """The ``first_gen_log_probs`` of a hand-off: per position, a list of candidates."""
    return [[{"token_id": token_id, "logprob": logprob_of(token_id), "rank": 1}]]


def given_logprob(first_gen_log_probs: Sequence[Any] | None) -> float:
    """The first token's log-probability as the hand-off gives it."""
    if not first_gen_log_probs:
        return UNKNOWN
    first = first_gen_log_probs[0]
    return float(first[0]["logprob"] if isinstance(first, list) else first)


def _alternatives(piece: str, logprob: float, count: int) -> list[tuple[str, float]]:
    return [(piece if rank == 0 else f"{piece}~{rank}", logprob - rank) for rank in range(count)]


def chat_logprobs(
    answer: Answer, positions: range, count: int, first: float, *, named: bool = False
) -> dict[str, Any]:
    """The ``logprobs`` of a chat choice, for these token positions; ``named``: by ``token_id:N``, not by text."""
    content = []
    for position in positions:
        piece = f"token_id:{answer.token_ids[position]}" if named else answer.pieces[position]
        logprob = logprob_of(answer.token_ids[position]) if position else first
        entry: dict[str, Any] = {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}
        entry["top_logprobs"] = [
            {"token": text, "logprob": value, "bytes": list(text.encode())}
            for text, value in _alternatives(piece, logprob, count)
        ]
        content.append(entry)
    return {"content": content}


def completion_logprobs(answer: Answer, positions: range, count: int, first: float) -> dict[str, Any]:
    """The ``logprobs`` of a completions choice, for these token positions."""
    pieces = [answer.pieces[position] for position in positions]
    values = [logprob_of(answer.token_ids[position]) if position else first for position in positions]
    offsets = []
    offset = sum(len(piece) for piece in answer.pieces[: positions.start])
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    return {
        "text_offset": offsets,
        "token_logprobs": values,
        "tokens": pieces,
        "top_logprobs": [
            dict(_alternatives(piece, value, count)) for piece, value in zip(pieces, values, strict=True)
        ],
    }
