"""Numbers for text against a dict."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.errors import StateError
from raystream.state import texts as module
from raystream.state.texts import TextNumbers
from tests.examples import examples

few = st.text("aé日", max_size=3)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
KINDS = {"text": (few | any_text, pa.string()), "bytes": (st.binary(max_size=20), pa.binary())}


@pytest.mark.parametrize("kind", KINDS)
@examples(60)
@given(data=st.data())
def test_numbers_are_given_by_first_appearance_and_stand_for_the_text(
    kind: str, data: st.DataObject
) -> None:
    values, arrow = KINDS[kind]
    texts, known = TextNumbers(), {}
    for batch in data.draw(st.lists(st.lists(values, max_size=30), max_size=6)):
        whole = pa.array([*batch, *batch], arrow)
        column = whole.slice(len(batch) // 2, len(batch))
        expected = [known.setdefault(t, len(known)) for t in column.to_pylist()]
        assert texts.number(column).tolist() == expected
        assert len(texts) == len(known)
    numbers = np.array([*reversed(known.values())], np.int64)
    assert texts.text(numbers, arrow).to_pylist() == [*reversed(known)]


def test_it_grows() -> None:
    texts = TextNumbers()
    texts.number(pa.array(["first"]))
    many = [f"{i:x}" * (i % 7) for i in range(3000)]
    column = pa.array(many)
    numbers = texts.number(column)
    assert len(texts) == 1 + len(set(many))
    assert texts.text(numbers, pa.string()) == column
    assert np.array_equal(texts.number(column), numbers)


def test_text_that_no_column_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TextNumbers()
    numbers = texts.number(pa.array(["abc", "de"]))
    monkeypatch.setattr(module, "BYTES_MAX", 5)
    assert texts.text(numbers, pa.string()).to_pylist() == ["abc", "de"]
    with pytest.raises(StateError, match="3 keys takes 8 bytes, and one checkpoint holds 5"):
        texts.text(numbers[[0, 0, 1]], pa.string())
