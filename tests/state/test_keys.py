"""The stable hash: values that were written down, and kernels that agree with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.state import kernels
from raystream.state.keys import even_ranges, key_group, key_hash
from tests.examples import examples

GOLDEN = {
    0: 0xE220A8397B1DCDAF,
    1: 0x910A2DEC89025CC1,
    -1: 0xE4D971771B652C20,
    2**63 - 1: 0x2A67D7552E039EA7,
    -(2**63): 0x481EC0A212A9F3DB,
    "": 0xE9E0033E3BADAF36,
    "a": 0xDCF7435C514F612A,
    "raystream": 0x79352B52212711BD,
    "Grüße 日本": 0xF9E4BCB24D01A2CC,
    b"abc": 0xDF400310E793ADA4,
    b"12345678": 0x52F7A02F7DAE87C,
    b"123456789": 0xF123579B0703752C,
    (1, 2): 0xF32F48CE28A3857,
    (2, 1): 0xA67D0E2AB66011FF,
    ("a", -1, b"x"): 0x528CD4D931DE35EF,
    (5,): 0x63033B0CA389C35A,
}
"""These are part of the stored format: if one changes, no checkpoint can be read any more."""


@pytest.mark.parametrize("key", GOLDEN, ids=repr)
def test_hashes_never_change(key: Any) -> None:
    assert key_hash(key) == GOLDEN[key]
    assert key_group(key, 256) == GOLDEN[key] >> 56
    assert key_group(key, 7) == (GOLDEN[key] >> 32) * 7 >> 32


def test_equal_keys_hash_alike() -> None:
    assert key_hash(True) == key_hash(1) == key_hash((1,))
    assert key_hash("é") == key_hash("é".encode())


@pytest.mark.parametrize("key", [1.5, [1], (1, 2.0)])
def test_other_types_are_no_keys(key: Any) -> None:
    with pytest.raises(TypeError, match="a key is an int, bool, str, bytes or a tuple of these"):
        key_hash(key)


int64 = st.integers(-(2**63), 2**63 - 1)
keys = st.lists(
    st.tuples(int64, st.text(), st.binary(), st.integers(-128, 127), st.booleans()), max_size=30
)


@examples(60)
@given(keys, st.integers(1, 2**15), st.permutations(range(5)), st.integers(1, 5), st.integers(0, 3))
def test_kernels_agree_with_plain_functions(
    keys: list[Any], groups: int, order: list[int], width: int, start: int
) -> None:
    types = [np.int64, pa.string(), pa.large_binary(), np.int8, bool]
    columns = [
        (pa.array if isinstance(t, pa.DataType) else np.array)([k[i] for k in keys], t)
        for i, t in enumerate(types)
    ]
    chosen = [columns[i][start:] for i in order[:width]]  # slices: Arrow offsets do not begin at 0
    plain = [tuple(k[i] for i in order[:width]) for k in keys[start:]]
    assert kernels.hash_columns(chosen).tolist() == [key_hash(k) for k in plain]
    assert kernels.key_groups(chosen, groups).tolist() == [key_group(k, groups) for k in plain]


@examples(60)
@given(st.lists(st.integers(0, 9), max_size=60))
def test_the_counting_sort_is_stable(groups: list[int]) -> None:
    order, offsets = kernels.sort_by_group(np.array(groups, np.uint16), 10)
    assert order.tolist() == sorted(range(len(groups)), key=groups.__getitem__)
    assert np.diff(offsets).tolist() == [groups.count(g) for g in range(10)]
    assert offsets[0] == 0


@pytest.mark.parametrize("groups", [1, 7, 256])
def test_ranges_are_even_and_tile(groups: int) -> None:
    for instances in range(1, groups + 1):
        ranges = even_ranges(groups, instances)
        assert [r.lo for r in ranges[1:]] == [r.hi for r in ranges[:-1]]
        assert (ranges[0].lo, ranges[-1].hi, len(ranges)) == (0, groups, instances)
        assert {len(r) for r in ranges} <= {groups // instances, -(-groups // instances)}
    with pytest.raises(ValueError, match="instances for"):
        even_ranges(groups, groups + 1)
