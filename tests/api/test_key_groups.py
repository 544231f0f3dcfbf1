"""`rs.key_groups` of all that a reference table may be held in, as a job itself finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import raystream as rs
from raystream.errors import StateError
from raystream.state.keys import key_group

TEXTS = ["a", "", "ü"]


@pytest.mark.parametrize(
    ("keys", "column"),
    [
        ([1, -5, 2**62], [1, -5, 2**62]),
        ([1, 2], np.array([1, 2], np.int8)),
        ([1, 2], pa.array([1, 2], pa.uint8())),
        ([True, False], [True, False]),
        ([True, False], np.array([True, False])),
        (TEXTS, TEXTS),
        (TEXTS, np.array(TEXTS)),
        (TEXTS, np.array(TEXTS, object)),
        (TEXTS, pa.array(TEXTS, pa.large_string())),
        (TEXTS, pa.array(TEXTS).dictionary_encode()),
        (TEXTS, pa.chunked_array([TEXTS[:1], TEXTS[1:]])),
        ([b"x", b"y"], [b"x", b"y"]),
        ([b"x", b"y"], pa.array([b"x", b"y"], pa.binary(1))),
        ([b"x", b"y"], pa.array([b"x", b"y"], pa.large_binary())),
        ([], []),
        ([], np.array([])),
    ],
    ids=lambda v: str(getattr(v, "dtype", getattr(v, "type", type(v).__name__))),
)
def test_they_are_those_of_the_job(keys: list[Any], column: Any) -> None:
    assert rs.key_groups(column).tolist() == [key_group(k, 256) for k in keys]


def test_so_are_those_of_keys_of_several_fields() -> None:
    found = rs.key_groups([1, 2], np.array(["a", "b"]), [True, False], groups=7)
    assert found.tolist() == [key_group((1, "a", True), 7), key_group((2, "b", False), 7)]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ([[1, None]], "1 of 2 keys are None"),
        ([["a", None]], "1 of 2 keys are None"),
        ([[1.5]], "double is no type of keys"),
        ([np.array([1.5])], "double is no type of keys"),
        ([np.array([[1], [2]])], "list.* is no type of keys"),
        ([[1, 2], [1]], "columns of one length are keys, not of 2, 1"),
        ([], "not of no columns"),
    ],
)
def test_what_is_no_key_is_refused(columns: list[Any], told: str) -> None:
    """Numbers beyond the end of a column were what lay there in memory."""
    with pytest.raises(StateError, match=told):
        rs.key_groups(*columns)
