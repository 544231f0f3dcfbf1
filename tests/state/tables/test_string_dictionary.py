"""Numbers for text against a dict."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event, Lock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import StateError
from raystream.schema.fields import field_of
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.growable_array import Room
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image, ImageHeader, InputPosition
from raystream.state.images.partition import partition
from raystream.state.images.row_shape import RowShape
from raystream.state.tables import object_table
from raystream.state.tables import string_dictionary as module
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.object_table import ObjectTable
from raystream.state.tables.string_dictionary import StringDictionary
from raystream.state.tables.structured_table import RowColumns, StructuredTable
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples
from tests.gates import LIMIT_SECONDS

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
    texts, known = StringDictionary(), {}
    for batch in data.draw(st.lists(st.lists(values, max_size=30), max_size=6)):
        whole = pa.array([*batch, *batch], arrow)
        column = whole.slice(len(batch) // 2, len(batch))
        expected = [known.setdefault(t, len(known)) for t in column.to_pylist()]
        assert texts.number(column).tolist() == expected
        assert len(texts) == len(known)
    numbers = np.array([*reversed(known.values())], np.int64)
    assert texts.text(numbers, arrow).to_pylist() == [*reversed(known)]


def test_it_grows() -> None:
    texts = StringDictionary()
    texts.number(pa.array(["first"]))
    many = [f"{i:x}" * (i % 7) for i in range(3000)]
    column = pa.array(many)
    numbers = texts.number(column)
    assert len(texts) == 1 + len(set(many))
    assert texts.text(numbers, pa.string()) == column
    assert np.array_equal(texts.number(column), numbers)


def test_numbers_are_turned_back_while_texts_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard somebody would come while memory grows and nobody has a view of it."""
    grow = Room.grow

    def slowly(self: Room, items: int) -> None:
        time.sleep(0.01)
        grow(self, items)

    monkeypatch.setattr(Room, "grow", slowly)
    texts, over, lock = StringDictionary(), Event(), Lock()
    texts.guard = lock
    first = pa.array([f"{i:x}" for i in range(500)])
    numbers = texts.number(first)

    def turned_back() -> int:
        for rounds in count(1):
            assert texts.text(numbers, pa.string()) == first
            if over.is_set():
                return rounds
        return 0

    with ThreadPoolExecutor(1) as aside:
        reading = aside.submit(turned_back)
        try:
            for at in range(1, 100):
                more = pa.array([f"{500 * at + i:x}" for i in range(500)])
                with lock:
                    given = texts.number(more).tolist()
                assert given == [*range(500 * at, 500 * (at + 1))]
        finally:
            over.set()
        assert reading.result(timeout=LIMIT_SECONDS)
    assert texts.text(numbers, pa.string()) == first


def test_text_that_no_column_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = StringDictionary()
    numbers = texts.number(pa.array(["abc", "de"]))
    monkeypatch.setattr(module, "BYTES_MAX", 5)
    assert texts.text(numbers, pa.string()).to_pylist() == ["abc", "de"]
    with pytest.raises(StateError, match="3 keys takes 8 bytes, and one checkpoint holds 5"):
        texts.text(numbers[[0, 0, 1]], pa.string())


class Said(rs.State):
    text: str = ""


@pytest.mark.parametrize("field", ["word", "text"])
def test_python_rows_with_text_that_no_column_holds_are_refused(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = RowShape((field_of("Word", "word", str, state=False),), state_schema(Said))
    table = ObjectTable(shape, len(ALL))
    table.rows.update({"a": Said(), "b": Said()})

    makes = {"word": "key_columns", "text": "column_of"}[field]
    two = pa.chunked_array([["a"], ["b"]])  # what Arrow makes of more than it can put in one
    monkeypatch.setattr(object_table, makes, lambda *_: [two] if field == "word" else two)
    with pytest.raises(StateError, match=f"{field} of 2 rows takes more than 2 GB"):
        next(table.capture(CheckpointRequest(), 1).parts(WHOLE))


class Seen(rs.State):
    n: int = 0


ALL = KeyRange(0, 16)
NAMES = RowShape((field_of("Word", "text", str, state=False),), state_schema(Seen))


def seen(parts: list[Image]) -> tuple[StructuredTable, StringDictionary]:
    table = StructuredTable(NAMES.state, keys=1, groups=len(ALL), shape=NAMES)
    table.fill([[part] for part in parts])
    (texts,) = table.texts
    assert texts is not None
    return table, texts


def image_of(table: StructuredTable) -> Image:
    _, rows, gone = next(table.capture(CheckpointRequest(), 5).parts(WHOLE))
    header = ImageHeader(
        operator="op",
        shape=NAMES.fingerprint,
        groups=len(ALL),
        keys=ALL,
        base=0,
        checkpoint=5,
        input_position=InputPosition(5),
    )
    return Image(header, rows, gone)


@examples(25)
@given(st.lists(st.text("aé日", max_size=4), unique=True), st.randoms())
def test_text_that_alone_is_the_key_is_learnt_beside_the_rows(
    words: list[str], rng: random.Random
) -> None:
    table, texts = seen([])
    n = np.arange(len(words))
    table.put_columns(RowColumns([texts.number(pa.array(words, pa.string()))], 5, {"n": n}))
    image = image_of(table)
    restored, again = seen(partition(image, random_ranges(rng, len(ALL))))
    assert image_of(restored).encode() == image.encode()
    slots = restored.find([again.number(pa.array(words, pa.string()))])
    assert restored.read(slots, "n").tolist() == n.tolist()
