"""Finds the key that a misspelled key was meant to be."""

from __future__ import annotations

from collections.abc import Iterable

FARTHEST = 2
"""Largest edit distance at which an unknown key counts as a misspelling of a known one."""


def edit_distance(left: str, right: str) -> int:
    """Count the insertions, deletions and replacements between two words (Levenshtein)."""
    previous = list(range(len(right) + 1))
    for row, left_character in enumerate(left, start=1):
        current = [row]
        for column, right_character in enumerate(right, start=1):
            replaced = previous[column - 1] + (left_character != right_character)
            current.append(min(previous[column] + 1, current[column - 1] + 1, replaced))
        previous = current
    return previous[-1]


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word within `FARTHEST` edits of `word` (the nearest; ties alphabetically), or None."""
    candidates = [
        (edit_distance(word, other), other) for other in known if abs(len(word) - len(other)) <= FARTHEST
    ]
    distance, best = min(candidates, default=(FARTHEST + 1, ""))
    return best if distance <= FARTHEST else None
