"""Images: a table, its checkpoint, and what keepers make of it."""

from __future__ import annotations

import enum
import random
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

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
from raystream.state.checkpoint import WHOLE, Shape, put_objects, take_objects
from raystream.state.image import VERSION, Ended, Image, ImageHeader, Standing, decode
from raystream.state.keys import cover, key_group
from raystream.state.objects import ObjectTable
from raystream.state.partition import (
    by_parts,
    fold,
    in_ranges,
    merge,
    part_of,
    partition,
    recut,
    recut_encoded,
)
from raystream.state.rows import StructuredTable
from raystream.state.structured import fill_rows, part_ends, put_rows, take_rows
from raystream.state.texts import TextNumbers
from tests.dataflow.cuts import random_ranges
from tests.examples import examples

GROUPS = 16
ALL = KeyRange(0, GROUPS)
COUNTED = {"in": np.arange(GROUPS).tobytes()}


class Numbers(rs.State):
    n: rs.Int32 = 7
    real: float = 0.5
    short: rs.Float32 = 0
    sure: bool = False
    due: rs.Timer = rs.NEVER
    six: Annotated[list[int], rs.Array("i1", 3)] = rs.zeros(3)
    few: Annotated[list[float], rs.Array("f4", 2)] = rs.zeros(2)


class Mood(enum.IntEnum):
    CALM = 1
    WILD = 2


class Anything(rs.State):
    n: rs.Int8 = 0
    maybe: rs.Int16 | None = None
    maybe_real: float | None = None
    text: str = ""
    note: str | None = None
    raw: bytes = b""
    mood: Mood = Mood.CALM
    many: list[tuple[int, str]] = rs.field(factory=list)
    table: dict[tuple[int, int], list[str]] = rs.field(factory=dict)


def key_fields(*hints: Any) -> tuple[Any, ...]:
    return tuple(field_of("Key", f"k{i}", hint, state=False) for i, hint in enumerate(hints))


NUMBERS = Shape(key_fields(int, rs.Int8), state_schema(Numbers))
WINDOWED = Shape(key_fields(int), state_schema(Numbers), "in windows")
TEXT = Shape(key_fields(str, int), state_schema(Numbers))
ANYTHING = Shape(key_fields(str, Mood, bool, bytes), state_schema(Anything))
SESSIONS = Shape(key_fields(str), state_schema(Anything), "in sessions", sessions=True)

small = st.integers(-3, 3)
texts = st.text("aé日", max_size=2)
reals = st.floats(allow_nan=False)
shorts = st.floats(allow_nan=False, width=32)
numbers = st.builds(
    Numbers,
    n=small,
    real=reals,
    short=shorts,
    sure=st.booleans(),
    due=st.just(rs.NEVER) | st.integers(0, 9),
    six=st.lists(small, min_size=3, max_size=3),
    few=st.lists(shorts, min_size=2, max_size=2),
)
anything = st.builds(
    Anything,
    n=small,
    maybe=st.none() | small,
    maybe_real=st.none() | reals,
    text=texts,
    note=st.none() | texts,
    raw=st.binary(max_size=2),
    mood=st.sampled_from(Mood),
    many=st.lists(st.tuples(small, texts), max_size=2),
    table=st.dictionaries(st.tuples(small, small), st.lists(texts, max_size=2), max_size=2),
)
starts = st.integers(-2, 2).map(lambda n: n * 30)
KINDS: dict[str, tuple[Shape, Any, Any]] = {
    "numbers": (NUMBERS, st.tuples(small, small), numbers),
    "windowed": (WINDOWED, st.tuples(small, starts), numbers),
    "text": (TEXT, st.tuples(texts, small), numbers),
    "anything": (
        ANYTHING,
        st.tuples(texts, st.sampled_from(Mood), st.booleans(), st.binary(max_size=1)),
        anything,
    ),
    "sessions": (SESSIONS, st.tuples(texts, starts), anything),
}
STRUCTURED = ["numbers", "windowed"]


# ---------------------------------------------------------------- tables with a history


class History:
    """A table of Python rows, changed epoch by epoch: (key, row or None to remove it)."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.table = ObjectTable(shape.state)
        self.epoch = 0

    def apply(self, changes: list[tuple[Any, Any]]) -> None:
        self.epoch += 1
        table = self.table
        for key, row in changes:
            if row is not None:
                table.rows[key] = copy_of(row)
                table.rows[key]._mark = self.epoch
                if self.shape.sessions:
                    table.ends[key] = key[1] + len(row.text) + self.epoch
            elif key in table.rows:
                table.remove(key, self.epoch)

    def image(self, since: int = 0, standing: Standing | None = None) -> Image:
        _, rows, gone = next(take_objects(self.table, self.shape, GROUPS, since).finish(WHOLE))
        return Image(header(self.shape, since, self.epoch, standing), rows, gone)


def copy_of(row: Any) -> Any:
    made = type(row)()
    for name in row._names:
        value = getattr(row, name)
        setattr(made, name, value.copy() if isinstance(value, list | dict) else value)
    return made


def header(shape: Shape, base: int, cut: int, standing: Standing | None = None) -> ImageHeader:
    return ImageHeader(
        "op", shape.fingerprint, GROUPS, ALL, base, cut, standing or Standing(cut * 10)
    )


def restored(shape: Shape, *images: Image) -> History:
    history = History(shape)
    for image in images:
        put_objects(history.table, shape, image)
    history.epoch = images[-1].header.cut
    return history


def structured(shape: Shape, *images: Image) -> StructuredTable:
    window = 30 if shape.window else None
    table = StructuredTable(shape.state, keys=len(shape.keys), groups=GROUPS, window=window)
    fill_rows(table, shape, [images[:1]])
    for image in images[1:]:
        put_rows(table, shape, image)
    return table


def histories(kind: str) -> st.SearchStrategy[list[list[tuple[Any, Any]]]]:
    _, keys, rows = KINDS[kind]
    return st.lists(st.lists(st.tuples(keys, st.none() | rows), max_size=5), max_size=6)


@lru_cache
def some(kind: str) -> list[list[tuple[Any, Any]]]:
    """One fixed history that is not empty."""
    shape, _, _ = KINDS[kind]
    rng = random.Random(kind)
    pool: list[Any] = [
        tuple(key_value(rng, f) for f in shape.keys) if len(shape.keys) > 1 else
        key_value(rng, shape.keys[0]) for _ in range(9)
    ]  # fmt: skip
    keys = [(k, 30 * i) for i, k in enumerate(pool)] if shape.window else pool
    return [[(k, shape.state.cls()) for k in rng.sample(keys, 4)] for _ in range(4)]


def key_value(rng: random.Random, f: Any) -> Any:
    if f.kind != "fixed":
        return rng.choice("abcdef") if f.kind == "text" else rng.randbytes(1)
    return (
        f.convert(rng.randrange(1, 3)) if f.convert else rng.randrange(2 if f.dtype == "?" else 9)
    )


# ---------------------------------------------------------------- the properties


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data())
def test_restoring_a_checkpoint_is_the_identity(kind: str, data: st.DataObject) -> None:
    shape = KINDS[kind][0]
    history = History(shape)
    for changes in data.draw(histories(kind)):
        history.apply(changes)
    stored = history.image().encode()
    again = restored(shape, decode(stored))
    assert again.table.rows == history.table.rows
    assert [type(k) for k in flat(again)] == [type(k) for k in flat(history)]
    assert again.table.ends == history.table.ends
    assert again.image().encode() == stored


def flat(history: History) -> list[Any]:
    """Parts of keys and values of fields, in key order: to compare their types."""
    out: list[Any] = []
    for key in sorted(history.table.rows):
        out += key if isinstance(key, tuple) else [key]
        row = history.table.rows[key]
        out += [getattr(row, n) for n in row._names]
    return out


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data(), seed=st.integers(0, 999))
def test_partition_then_merge_is_the_identity(kind: str, data: st.DataObject, seed: int) -> None:
    shape = KINDS[kind][0]
    history = History(shape)
    changes = data.draw(histories(kind))
    for each in changes:
        history.apply(each)
    standing = Standing(5, False, {1: (Ended(2, 0, 4),)}, {"a": (0, 7), "b": (9,)}, COUNTED)
    for since in {0, len(changes) // 2}:
        whole = history.image(since, standing)
        ranges = random_ranges(random.Random(seed), GROUPS)
        parts = [decode(p.encode()) for p in partition(whole, ranges)]
        for keys, part in zip(ranges, parts, strict=True):
            assert part.header.keys == keys
            table = restored(shape, part).table if not since else None
            assert table is None or all(group(shape, k) in range(*keys) for k in table.rows)
        assert sum(map(len, parts)) == len(whole)
        random.Random(seed).shuffle(parts)
        assert merge(parts).encode() == whole.encode()


@pytest.mark.parametrize("kind", KINDS)
@examples(15)
@given(data=st.data(), seed=st.integers(0, 999))
def test_chains_cut_into_other_ranges_and_back_are_the_same_rows(
    kind: str, data: st.DataObject, seed: int
) -> None:
    """Of ranges as one set of instances had them, the parts that others are to have."""
    shape, rng = KINDS[kind][0], random.Random(seed)
    history, images = History(shape), []
    for since, changes in enumerate([[], *data.draw(histories(kind))]):
        history.apply(changes)
        images.append(history.image(since))
    held = [
        (keys, [p.encode() for i in images for p in partition(i, [keys])])
        for keys in random_ranges(rng, GROUPS)
    ]
    for wanted in random_ranges(rng, GROUPS):
        parts = cover([keys for keys, _ in held], wanted)
        assert parts is not None
        encoded = [[recut_encoded([e], part) for e in dict(held)[keys]] for keys, part in parts]
        chains = [[decode(each) for each in chain] for chain in encoded]
        assert chains == recut([[decode(e) for e in chain] for _, chain in held], wanted)
        merged = merge([fold(base, deltas) for base, *deltas in chains])
        (expected,) = partition(history.image(), [wanted])
        assert merged.rows == expected.rows


@examples(50)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_parts_are_the_image(data: st.DataObject, seed: int) -> None:
    """Images in parts, other parts of each, are the image, cut to any ranges that theirs make."""
    history, rng = History(NUMBERS), random.Random(seed)
    table = StructuredTable(NUMBERS.state, keys=2, groups=GROUPS)
    for since, changes in enumerate(data.draw(histories("numbers"))):
        history.apply(changes)
        put_rows(table, NUMBERS, history.image(since))
    since = rng.randrange(history.epoch + 1)
    image = image_of(table, NUMBERS, since, header(NUMBERS, since, history.epoch))
    take = take_rows(table, NUMBERS, GROUPS, since, history.epoch)
    made = list(take.finish(rng.choice((1, 300, WHOLE))))
    ends = [part.end for part in made]
    parts = [
        Image(part_of(image.header, KeyRange(lo, hi)), part.rows, part.gone)
        for lo, hi, part in zip([0, *ends], ends, made, strict=False)
    ]
    assert merge(parts).encode() == image.encode()
    ranges = random_ranges(rng, GROUPS)
    assert in_ranges(parts, ranges) == partition(image, ranges)
    assert by_parts([parts, partition(image, ranges)]) == [[part, part] for part in parts]


@given(counts=st.lists(st.integers(0, 9), min_size=1), most=st.integers(1, 30))
def test_parts_are_as_large_as_they_may_be(counts: list[int], most: int) -> None:
    offsets = np.cumsum([0, *counts])
    ends = part_ends(offsets, most)
    assert ends == sorted(set(ends)) and ends[-1] == len(counts)
    begins = [0, *ends]
    for begin, end in zip(begins, ends, strict=False):
        rows = counts[begin:end]
        assert sum(rows) <= most or len([n for n in rows if n]) == 1
        assert end == len(counts) or sum(rows) + sum(counts[end : end + 1]) > most
    assert sum(counts[begins[-2] :]) > 0 or len(ends) == 1


def group(shape: Shape, key: Any) -> int:
    return key_group(key[0] if shape.window else key, GROUPS)


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data())
def test_a_base_and_its_deltas_are_the_full_image(kind: str, data: st.DataObject) -> None:
    shape = KINDS[kind][0]
    history, cuts = History(shape), []
    changes = data.draw(histories(kind))
    taken: list[Image] = []
    for i, each in enumerate(changes):
        history.apply(each)
        if i == 0 or data.draw(st.booleans()):
            since = history.epoch if not taken else taken[-1].header.cut
            taken.append(history.image(since if taken else 0))
            cuts.append(history.epoch)
            if data.draw(st.booleans()):
                history.table.settled(history.epoch)
    if not taken:
        return
    taken = [decode(t.encode()) for t in taken]
    at_last = restored(shape, *taken)
    full = at_last.image().encode()
    assert fold(taken[0], taken[1:]).encode() == full
    # Deltas fold to deltas, and the order of folding does not matter.
    if len(taken) > 2:
        assert fold(taken[0], [fold(taken[1], taken[2:])]).encode() == full
    if cuts[-1] == history.epoch:
        assert history.image().encode() == full


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data())
def test_deltas_after_a_hand_over(kind: str, data: st.DataObject) -> None:
    """Restored from a base and a delta on top; the next delta is against the base again."""
    shape = KINDS[kind][0]
    history = History(shape)
    before, between, after = (data.draw(histories(kind)) for _ in range(3))
    for each in [[], *before]:
        history.apply(each)
    base = history.image()
    for each in [[], *between]:
        history.apply(each)
    candidate = restored(shape, base, history.image(base.header.cut))
    for each in [[], *after]:
        history.apply(each)
        candidate.apply(each)
    since = base.header.cut
    assert candidate.image().encode() == history.image().encode()
    folded = fold(base, [candidate.image(since)])
    assert folded.encode() == history.image().encode()


@pytest.mark.parametrize("kind", STRUCTURED)
@examples(25)
@given(data=st.data())
def test_structured_and_python_rows_have_the_same_images(kind: str, data: st.DataObject) -> None:
    shape = KINDS[kind][0]
    history, images = History(shape), []
    for i, changes in enumerate([[], *data.draw(histories(kind))]):
        history.apply(changes)
        images.append(history.image(i))
    table = structured(shape, *images)
    full = history.image()
    assert image_of(table, shape, 0, full.header).encode() == full.encode()
    since = len(images) // 2
    if since:
        delta = image_of(table, shape, since, header(shape, since, history.epoch))
        assert delta.rows == history.image(since).rows
        assert fold(images[0], [*images[1:since], delta]).encode() == full.encode()
    assert restored(shape, image_of(table, shape, 0, full.header)).table.rows == history.table.rows


def image_of(table: StructuredTable, shape: Shape, since: int, head: ImageHeader) -> Image:
    _, rows, gone = next(take_rows(table, shape, GROUPS, since, head.cut).finish(WHOLE))
    return Image(head, rows, gone)


@examples(25)
@given(data=st.data())
def test_text_keys_are_numbered_and_named(data: st.DataObject) -> None:
    history = History(TEXT)
    for changes in data.draw(histories("text")):
        history.apply(changes)
    full = history.image()
    texts = [TextNumbers(), None]
    texts[0].number(pa.array(["unused"]))
    table = StructuredTable(TEXT.state, keys=2, groups=GROUPS)
    fill_rows(table, TEXT, [[full]], texts)
    _, rows, gone = next(take_rows(table, TEXT, GROUPS, 0, full.header.cut, texts).finish(WHOLE))
    assert Image(full.header, rows, gone).encode() == full.encode()


# ---------------------------------------------------------------- what is refused


def whole(kind: str = "numbers", epochs: int = 4) -> Image:
    history = History(KINDS[kind][0])
    for changes in some(kind)[:epochs]:
        history.apply(changes)
    return history.image()


@pytest.mark.parametrize("kind", KINDS)
def test_small_images_are_written_as_large_ones_are(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [whole(kind, epochs).encode() for epochs in range(5)]
    monkeypatch.setattr("raystream.state.image.SMALL", -1)
    assert [whole(kind, epochs).encode() for epochs in range(5)] == stored


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_is_seen(kind: str) -> None:
    stored = whole(kind).encode()
    assert len(decode(stored)) > 0
    rng = random.Random(1)
    for at in [*range(24), *rng.sample(range(24, len(stored)), 60)]:
        bad = bytearray(stored)
        bad[at] ^= 1 << rng.randrange(8)
        with pytest.raises(StateError, match=r"damaged|no checkpoint|format version"):
            decode(bytes(bad))
    for length in (0, 7, 17, 40, len(stored) // 2, len(stored) - 1):
        with pytest.raises(StateError, match=r"damaged|no checkpoint"):
            decode(stored[:length])


def test_other_formats_are_named() -> None:
    stored = bytes(whole().encode())
    with pytest.raises(StateError, match="that are no checkpoint: they do not begin as one"):
        decode(b"PAR1" + stored)
    newer = stored[:8] + (VERSION + 1).to_bytes(2, "little") + stored[10:]
    with pytest.raises(
        StateError, match=f"version {VERSION + 1}; this raystream reads version {VERSION}"
    ):
        decode(newer)


def test_an_image_shares_the_memory_it_was_decoded_from() -> None:
    buffer = pa.py_buffer(whole().encode())
    column = decode(buffer).rows.column("n").buffers()[1]
    assert buffer.address <= column.address < buffer.address + buffer.size
    assert column.address % 8 == buffer.address % 8


def test_an_image_without_state() -> None:
    standing = Standing(7, True, {0: (Ended(3, 0, 16),)}, {"s": (1, 2, 3)}, COUNTED)
    image = Image(ImageHeader("op", "", GROUPS, ALL, 0, 9, standing), None, None)
    assert decode(image.encode()) == image
    parts = partition(image, [KeyRange(0, 5), KeyRange(5, 16)])
    assert [p.header.standing.counts for p in parts] == [
        {"in": COUNTED["in"][: 8 * 5]},
        {"in": COUNTED["in"][8 * 5 :]},
    ]
    assert merge(parts) == image
    later = replace(image, header=replace(image.header, base=9, cut=12))
    assert fold(image, [later]).header == replace(image.header, cut=12)


@pytest.mark.parametrize(
    "change",
    [
        {"base": 2},
        {"base": 4, "cut": 4},
        {"operator": "other"},
        {"keys": KeyRange(0, 8)},
        {"shape": "Other(n: int64) by k0: int"},
        {"groups": 256},
    ],
)
def test_a_delta_applies_to_its_base_only(change: dict[str, Any]) -> None:
    base = whole()
    delta = replace(base, header=replace(base.header, **{"base": 4, "cut": 5, **change}))
    with pytest.raises(StateError, match=r"the image of .* does not apply to the image of op"):
        fold(base, [delta])


def test_parts_that_do_not_belong_together() -> None:
    one, two, three = partition(whole(), [KeyRange(0, 4), KeyRange(4, 8), KeyRange(8, 16)])
    with pytest.raises(StateError, match=r"op \[8, 16\) .* does not follow .* \[0, 4\)"):
        merge([one, three])
    with pytest.raises(StateError, match="does not follow"):
        merge([one, one])
    later = replace(two, header=replace(two.header, cut=9))
    with pytest.raises(StateError, match="does not belong with"):
        merge([one, later])
    with pytest.raises(StateError, match=r"has no part \[3, 9\)"):
        partition(two, [KeyRange(3, 9)])


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("n", 300, r"Anything\.n of key 'k' holds 300, which does not fit n: int8"),
        ("n", np.int64(3), r"np\.int64\(3\), which does not fit.*\n.*int\(\.\.\.\)"),
        ("n", 1.0, r"holds 1\.0, which does not fit n: int8\n *int\(\.\.\.\) or round"),
        ("n", 2**70, r"does not fit n: int8\n *It holds integers from -128 to 127\."),
        ("mood", 7, r"holds 7, which does not fit mood: .*Mood\n *Mood has CALM=1"),
        ("n", None, "holds None, which does not fit n: int8"),
        ("maybe_real", np.float64(1), "which does not fit maybe_real: float64"),
        ("text", None, "holds None, which does not fit text: str"),
        ("text", "\ud800", "does not fit text"),
        ("raw", "x", "does not fit raw: bytes"),
        (
            "many",
            [{1}],
            r"Anything\.many of key 'k' holds \[\{1\}\], which does not fit many: list",
        ),
        ("many", ((1, "a"),), r"holds \(\(1, 'a'\),\), which does not fit many"),
        ("many", [(1, "a"), [1, "a"]], "which does not fit many"),
        ("many", [(1, 2)], "which does not fit many"),
        ("many", [(1, "a", 3)], "which does not fit many"),
        ("many", [(2**70, "a")], r"does not fit many(.|\n)*at most 64 bits"),
        (
            "table",
            {(1, 1): ["a", None]},
            r"does not fit table: dict\[tuple\[int, int\], list\[str\]\]",
        ),
        ("table", {1: []}, "does not fit table"),
    ],
)
def test_values_that_do_not_fit_are_named(field: str, value: Any, complaint: str) -> None:
    shape = Shape(key_fields(str), state_schema(Anything))
    history = History(shape)
    row = Anything()
    setattr(row, field, value)
    history.table.rows.update({"a": Anything(), "k": row})
    with pytest.raises(StateError, match=complaint):
        history.image()


@pytest.mark.parametrize(
    ("field", "value"), [("six", [1, 2]), ("six", [1, 2, 300]), ("sure", 1), ("n", 2**31)]
)
def test_numbers_that_do_not_fit_are_named(field: str, value: Any) -> None:
    history = History(NUMBERS)
    history.table.rows[1, 2] = Numbers(**{field: value})
    with pytest.raises(StateError, match=rf"Numbers\.{field} of key \(1, 2\) holds"):
        history.image()


def test_numbers_are_stored_as_declared() -> None:
    history = History(NUMBERS)
    history.table.rows[1, 2] = Numbers(n=True, real=3, short=0.1)
    (row,) = restored(NUMBERS, history.image()).table.rows.values()
    assert row == Numbers(n=1, real=3.0, short=0.1), "a Python float keeps its 64 bits"
    assert type(row.n) is int
    assert type(row.real) is float


def test_the_copy_is_not_torn() -> None:
    """What the user changes after the first half is not seen by the second."""
    shape = Shape(key_fields(str), state_schema(Anything))
    history = History(shape)
    history.apply([("k", Anything(many=[(1, "a")], text="before"))])
    taken = take_objects(history.table, shape, GROUPS, 0)
    row: Any = history.table.rows["k"]
    row.many.append((2, "b"))
    row.text = "after"
    _, rows, gone = next(taken.finish(WHOLE))
    assert rows.column("text").to_pylist() == ["before"]
    image = Image(header(shape, 0, 1), rows, gone)
    assert restored(shape, image).table.rows["k"] == Anything(many=[(1, "a")], text="before")
