"""What Arrow writes of JSON is what Python would write."""

import json
from datetime import date
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.io.files.declared import table_of
from raystream.io.output.json_text import json_objects


class Each(NamedTuple):
    number: int
    name: str
    flag: bool
    share: float
    maybe: int | None
    word: str | None
    day: date
    parts: list[str]


ROWS = st.builds(
    Each,
    st.integers(-(2**63), 2**63 - 1),
    st.text(),
    st.booleans(),
    st.floats(),
    st.none() | st.integers(0, 9),
    st.none() | st.text(st.sampled_from('ab"\\\n\x00é'), max_size=4),
    st.dates(),
    st.lists(st.text(max_size=3), max_size=3),
)


def plain(row: Each) -> dict[str, Any]:
    return {**row._asdict(), "day": row.day.isoformat()}


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_texts_are_those_of_python(rows: list[Each]) -> None:
    batch = rs.Batch(Each, dict(zip(Each._fields, zip(*rows, strict=True), strict=True)))
    table = table_of(batch, "json")
    texts = json_objects(table, table.schema.names).to_pylist()
    assert texts == [json.dumps(plain(row), ensure_ascii=False) for row in rows]
