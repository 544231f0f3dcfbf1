"""The filter of a segment: no key is lost, and few keys that are not there are looked for."""

from __future__ import annotations

import numpy as np
import pytest

from raystream.state.segments.segment import FILTER_BITS, HASHES, KeyFilter

ROWS = 40_000


@pytest.mark.parametrize("part", [1, 256], ids=["all hashes", "one key group"])
def test_the_filter_finds_all_keys_and_98_of_100_others_are_told(part: int) -> None:
    """Whether the segment has the whole range or the hashes of one key group."""
    rng = np.random.default_rng(part)
    hashes = np.sort(rng.integers(0, HASHES // part - 1, 2 * ROWS, np.uint64, endpoint=True))
    mine = rng.permutation(2 * ROWS) < ROWS
    there, others = hashes[mine], hashes[~mine]
    keys = KeyFilter(ROWS, int(there[0]), int(there[-1]))
    keys.add(there, there)
    assert keys.ask(there, there).all()
    assert keys.ask(others, others).mean() < 0.02
    assert keys.nbytes <= ROWS * FILTER_BITS / 8 + 64


def test_keys_of_one_hash_are_told_apart_by_their_probes() -> None:
    hashes = np.full(1000, 7 << 40, np.uint64)
    probes = np.arange(1000, dtype=np.uint64)
    keys = KeyFilter(ROWS, 0, HASHES - 1)
    keys.add(hashes[:20], probes[:20])
    assert keys.ask(hashes[:20], probes[:20]).all()
    assert keys.ask(hashes[20:], probes[20:]).mean() < 0.5
