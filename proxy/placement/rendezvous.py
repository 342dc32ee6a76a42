"""Rendezvous hashing: each worker's score for a key is a mix of both, the highest score wins.

A worker that joins takes 1/n of the keys and nobody else's change hands; one that leaves spreads its keys over all
others. The scores depend on the key and the workers' addresses alone, so processes that never talked agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.uint64]

_MASK = 2**64 - 1
# The odd constants of MurmurHash3's finaliser, which is what this is, without its last shift: the high bits decide.
_FIRST, _SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_FIRST_64, _SECOND_64, _SHIFT_64 = np.uint64(_FIRST), np.uint64(_SECOND), np.uint64(33)


def few_scores(seeds: Sequence[int], key: int) -> list[int]:
    """The scores of a few workers; equal to those of `scores`."""
    mixed = [((seed ^ key) * _FIRST) & _MASK for seed in seeds]
    return [((each ^ (each >> 33)) * _SECOND) & _MASK for each in mixed]


def scores(seeds: Scores, key: int) -> Scores:
    """The score of every worker for a key.

    Args:
        seeds: 64-bit numbers of the workers.
        key: a 64-bit number.
    """
    mixed: Scores = seeds ^ np.uint64(key)
    mixed *= _FIRST_64
    mixed ^= mixed >> _SHIFT_64
    mixed *= _SECOND_64
    return mixed
