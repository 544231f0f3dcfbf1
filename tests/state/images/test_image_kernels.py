"""What makes the columns of an image, against NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from raystream.schema.columns import read_only
from raystream.state.growable_array import as_words
from raystream.state.images.image_kernels import DIGIT_BITS, FEW, sort_in_groups, to_columns

SPREADS = [1, 3, 1 << DIGIT_BITS, 1 << 20, 1 << 63]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("sizes", [[0, 1, 2], [FEW, FEW + 1, 0], [3000, 1, 700]])
def test_positions_are_sorted_inside_each_group(spread: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(spread % 97 + len(sizes))
    n = sum(sizes)
    column = rng.integers(-spread, spread, n, np.int64)
    before = rng.permutation(n)
    offsets = np.cumsum([0, *sizes])
    order = before.copy()
    sort_in_groups(read_only(column), offsets, order)
    for first, last in pairwise(offsets):
        wanted = before[first:last][np.argsort(column[before[first:last]], kind="stable")]
        assert order[first:last].tolist() == wanted.tolist()


FIELDS = [("a", "i8"), ("b", "i2"), ("c", "f4", (3,)), ("d", "?"), ("e", "f8", (2,)), ("f", "i4")]


@pytest.mark.parametrize("n", [0, 1, 100])
def test_fields_of_rows_are_columns(n: int) -> None:
    dtype = np.dtype([("_key", "i8", (1,)), *FIELDS], align=True)
    rng = np.random.default_rng(n)
    rows = np.zeros(n, dtype)
    for name, *_ in FIELDS:
        rows[name] = rng.integers(0, 100, rows[name].shape)
    order = rng.permutation(n)
    names = [name for name, *_ in FIELDS]
    sizes = [dtype[name].itemsize for name in names]
    begins = np.cumsum([0, *(-(-n * size // 8) * 8 for size in sizes)])
    out = np.empty(begins[-1] // 8, np.int64)
    at = [dtype.fields[name][1] for name in names] if dtype.fields is not None else []
    fields = np.array([at, sizes, begins[:-1]], np.int64).T.copy()
    to_columns(as_words(rows), order, fields, out)
    for name, size, begin in zip(names, sizes, begins, strict=False):
        column = out.view(np.uint8)[begin : begin + n * size].tobytes()
        assert column == rows[name][order].tobytes()
