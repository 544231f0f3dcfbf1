"""Random ranges of key groups."""

from __future__ import annotations

import random
from itertools import pairwise

from raystream.schema.types import KeyRange


def random_ranges(rng: random.Random, groups: int, lo: int = 0) -> list[KeyRange]:
    """Ranges that tile [lo, groups): mostly few, sometimes with a very narrow one."""
    bounds = {lo, groups, *(rng.randrange(lo, groups) for _ in range(rng.choice([0, 1, 2, 4])))}
    if groups - lo > 2 and rng.random() < 0.3:
        at = rng.randrange(lo + 1, groups - 1)
        bounds |= {at, at + 1}
    return [KeyRange(a, b) for a, b in pairwise(sorted(bounds))]
