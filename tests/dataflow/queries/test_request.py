"""What a client asks of whom for the keys of a request, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.queries.looking import KEYS_MAX
from raystream.dataflow.queries.request import Moment, StateRequest, groups_of
from raystream.state.keys import even_ranges, key_group
from tests.examples import examples

GROUPS = 16
SCHEMA = pa.schema([("key:word", pa.string())])
NO_ROWS = pa.RecordBatch.from_pylist([], schema=SCHEMA)


def batch(words: list[str]) -> Any:
    return pa.RecordBatch.from_pylist([{"key:word": w} for w in words], schema=SCHEMA)


def owners(instances: int, vertex: int = 1) -> Assignment:
    ranges = even_ranges(GROUPS, instances)
    return Assignment(1, tuple(Serving(vertex, k, f"op/{k.lo}", "") for k in ranges))


@examples(50)
@given(st.lists(st.text(max_size=3), max_size=250), st.integers(1, 5))
def test_each_key_is_asked_for_once_at_its_owner(words: list[str], instances: int) -> None:
    request = StateRequest(1, batch(words), GROUPS, 7)
    parts = request.queries(owners(instances))
    assert sorted(at for part in parts for at in part.at) == list(range(len(words)))
    for part in parts:
        assert part.query.keys.column(0).to_pylist() == [words[at] for at in part.at]
        assert 0 < len(part.at) <= KEYS_MAX
        assert part.query.least == 7
        for word in part.query.keys.column(0).to_pylist():
            assert part.serving.keys.holds(key_group(word, GROUPS))


def test_candidates_and_owners_of_others_are_not_asked() -> None:
    whole = even_ranges(GROUPS, 1)[0]
    other = Serving(2, whole, "other/0", "")
    candidate = Serving(1, whole, "op/1", "", candidate=True)
    request = StateRequest(1, batch(["a"]), GROUPS, 0)
    assert request.queries(Assignment(1, (other, candidate))) == []
    assert request.open == {0}


def test_what_is_answered_is_not_asked_again_and_counts_once() -> None:
    request = StateRequest(1, batch(["a", "b", "c"]), GROUPS, 4)
    assert request.upto == 4
    one, *rest = request.queries(owners(GROUPS))
    rows = batch(["a"])
    request.answered(one, 9, [0], rows)
    request.answered(one, 11, [], NO_ROWS)
    assert request.upto == 9
    assert request.rows == [([one.at[0]], rows)]
    assert [part.at for part in request.queries(owners(GROUPS))] == [part.at for part in rest]
    for part in rest:
        request.answered(part, 5, [], NO_ROWS)
    assert not request.open and request.upto == 9


def test_keys_of_several_columns_have_the_groups_of_their_tuples() -> None:
    schema = pa.schema(
        [("key:a", pa.string()), ("key:b", pa.int64()), ("window:start", pa.int64())]
    )
    rows = [("x", 1, 60), ("y", None, 0)]
    keys = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )
    assert groups_of(keys, GROUPS) == [key_group((a, b), GROUPS) for a, b, _ in rows]


def test_moments_are_ordered_by_run_and_epoch() -> None:
    assert Moment(1, 500) < Moment(2, 3) < Moment(2, 4)
