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
from raystream.state import checkpoint
from raystream.state import texts as module
from raystream.state.checkpoint import WHOLE, Shape, take_objects
from raystream.state.image import Image, ImageHeader, Standing
from raystream.state.objects import ObjectTable
from raystream.state.partition import partition
from raystream.state.room import Room
from raystream.state.rows import Part, StructuredTable
from raystream.state.structured import fill_rows, take_rows
from raystream.state.texts import TextNumbers
from tests.dataflow.cuts import random_ranges
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


def test_numbers_are_turned_back_while_texts_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard somebody would come while memory grows and nobody has a view of it."""
    grow = Room.grow

    def slowly(self: Room, items: int) -> None:
        time.sleep(0.01)
        grow(self, items)

    monkeypatch.setattr(Room, "grow", slowly)
    texts, over, lock = TextNumbers(), Event(), Lock()
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
        assert reading.result(timeout=60)
    assert texts.text(numbers, pa.string()) == first


def test_text_that_no_column_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TextNumbers()
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
    shape = Shape((field_of("Word", "word", str, state=False),), state_schema(Said))
    table = ObjectTable(shape.state)
    table.rows.update({"a": Said(), "b": Said()})

    makes = {"word": "_key_columns", "text": "_column"}[field]
    two = pa.chunked_array([["a"], ["b"]])  # what Arrow makes of more than it can put in one
    monkeypatch.setattr(checkpoint, makes, lambda *_: [two] if field == "word" else two)
    with pytest.raises(StateError, match=f"{field} of 2 rows takes more than 2 GB"):
        next(take_objects(table, shape, len(ALL), 0).finish(WHOLE))


class Seen(rs.State):
    n: int = 0


ALL = KeyRange(0, 16)
NAMES = Shape((field_of("Word", "text", str, state=False),), state_schema(Seen))


def seen(texts: TextNumbers, parts: list[Image]) -> StructuredTable:
    table = StructuredTable(NAMES.state, keys=1, groups=len(ALL))
    fill_rows(table, NAMES, [[part] for part in parts], [texts])
    return table


def image_of(table: StructuredTable, texts: TextNumbers) -> Image:
    _, rows, gone = next(take_rows(table, NAMES, len(ALL), 0, 5, [texts]).finish(WHOLE))
    header = ImageHeader("op", NAMES.fingerprint, len(ALL), ALL, 0, 5, Standing(5))
    return Image(header, rows, gone)


@examples(25)
@given(st.lists(st.text("aé日", max_size=4), unique=True), st.randoms())
def test_text_that_alone_is_the_key_is_learnt_beside_the_rows(
    words: list[str], rng: random.Random
) -> None:
    texts, again = TextNumbers(), TextNumbers()
    table = seen(texts, [])
    n = np.arange(len(words))
    table.put(Part([texts.number(pa.array(words, pa.string()))], 5, {"n": n}))
    image = image_of(table, texts)
    restored = seen(again, partition(image, random_ranges(rng, len(ALL))))
    assert image_of(restored, again).encode() == image.encode()
    slots = restored.find([again.number(pa.array(words, pa.string()))])
    assert restored.read(slots, "n").tolist() == n.tolist()
