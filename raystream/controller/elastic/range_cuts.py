"""Cutting key groups into ranges by load instead of by number: pure arithmetic on weights.

Weights are per key group of the whole job (float64 [G]); only their proportions count. If all are
zero, all key groups count the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from raystream.schema.types import KeyRange

LEAST = 1e-6
"""What an idle key group counts, as a share of the mean weight: idle ones are spread too."""


def weight(keys: KeyRange, weights: np.ndarray) -> float:
    """The load of a range."""
    return float(weights[keys.lo : keys.hi].sum())


def even(keys: KeyRange, weights: np.ndarray, parts: int) -> tuple[KeyRange, ...]:
    """Cut a range into `parts` parts of nearly equal load, each of at least one key group.

    Each cut is where the load before it is nearest to its share, so two parts are the best two that
    are possible. There are never more parts than key groups.
    """
    parts = min(parts, len(keys))
    own = weights[keys.lo : keys.hi].astype(np.float64)
    before = np.concatenate([[0.0], np.cumsum(own + (own.mean() * LEAST or 1.0))])
    cuts = [0]
    for i in range(1, parts):
        share = before[-1] * i / parts
        at = int(np.searchsorted(before, share))
        if share - before[at - 1] <= before[at] - share:
            at -= 1
        cuts.append(min(max(at, cuts[-1] + 1), len(keys) - (parts - i)))
    return tuple(KeyRange(keys.lo + lo, keys.lo + hi) for lo, hi in pairwise([*cuts, len(keys)]))


def heaviest(ranges: Iterable[KeyRange], weights: np.ndarray) -> float:
    """The greatest load of the ranges."""
    return max(weight(r, weights) for r in ranges)


def within(
    ranges: Sequence[KeyRange], weights: np.ndarray, least: int, most: int
) -> tuple[KeyRange, ...]:
    """The ranges, changed as little as is needed to have from `least` to `most` of them: the
    heaviest are halved, or the lightest neighbours merged."""
    found = list(ranges)
    while len(found) < least and any(len(r) > 1 for r in found):
        at = max(
            (i for i, r in enumerate(found) if len(r) > 1),
            key=lambda i: (weight(found[i], weights), len(found[i])),
        )
        found[at : at + 1] = even(found[at], weights, 2)
    while len(found) > most:
        at = min(
            range(len(found) - 1),
            key=lambda i: weight(KeyRange(found[i].lo, found[i + 1].hi), weights),
        )
        found[at : at + 2] = [KeyRange(found[at].lo, found[at + 1].hi)]
    return tuple(found)
