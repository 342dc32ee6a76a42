"""Prompts that go on from given token ids, as NeMo-RL makes them (`required_prefix_token_ids`).

What a model has written need not tokenise to the ids that it wrote. For training a later turn must go on from the very
ids, so those of the template are cut behind the last answer and the given ones put before the rest.
"""

from __future__ import annotations

from collections.abc import Sequence


def continue_from(given: Sequence[int], answered: Sequence[int], whole: Sequence[int], end: int) -> list[int]:
    """Replace the beginning of a prompt.

    Args:
        given: the ids to go on from, with or without the end token behind the last answer.
        answered: the template's ids of the conversation up to its last answer.
        whole: the template's ids of the whole conversation.
        end: id of the token that ends a message.

    Returns:
        `given`, then `whole` from the end token of the last answer on.

    Raises:
        ValueError: the last answer has no end token in `whole`.
    """
    at = -1
    for _ in range(answered.count(end)):
        at = whole.index(end, at + 1)
    if at < 0:
        raise ValueError("no end token")
    beginning = given[:-1] if given[-1] == end else given
    return [*beginning, *whole[at:]]
