"""Images: a table, its checkpoint, and what keepers make of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.images.image import (
    VERSION,
    Image,
    InputPosition,
    decode,
)
from raystream.state.images.partition import (
    fold,
)
from raystream.state.tables.structured_table import StructuredTable
from tests.examples import examples
from tests.state.images.histories import (
    GROUPS,
    KINDS,
    STRUCTURED,
    TEXT,
    History,
    flat,
    header,
    histories,
    image_of,
    restored,
    structured,
    whole,
)


@pytest.mark.parametrize("position", [7, 2**63, 2**64, 2**190 + 5, -(2**70)])
def test_positions_of_splits_have_any_size(position: int) -> None:
    """Such as sequence numbers of Kinesis."""
    at = InputPosition(3, splits={"shard": (1, position, 20)})
    image = History(TEXT).image()
    stored = replace(image, header=header(TEXT, 0, 4, at)).encode()
    assert decode(stored).header.input_position == at


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


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data())
def test_a_base_and_its_deltas_are_the_full_image(kind: str, data: st.DataObject) -> None:
    shape = KINDS[kind][0]
    history, checkpoints = History(shape), []
    changes = data.draw(histories(kind))
    taken: list[Image] = []
    for i, each in enumerate(changes):
        history.apply(each)
        if i == 0 or data.draw(st.booleans()):
            since = history.epoch if not taken else taken[-1].header.checkpoint
            taken.append(history.image(since if taken else 0))
            checkpoints.append(history.epoch)
            if data.draw(st.booleans()):
                history.table.settle(history.epoch)
    if not taken:
        return
    taken = [decode(t.encode()) for t in taken]
    at_last = restored(shape, *taken)
    full = at_last.image().encode()
    assert fold(taken[0], taken[1:]).encode() == full
    # Deltas fold to deltas, and the order of folding does not matter.
    if len(taken) > 2:
        assert fold(taken[0], [fold(taken[1], taken[2:])]).encode() == full
    if checkpoints[-1] == history.epoch:
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
    candidate = restored(shape, base, history.image(base.header.checkpoint))
    for each in [[], *after]:
        history.apply(each)
        candidate.apply(each)
    since = base.header.checkpoint
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
    assert image_of(table, 0, full.header).encode() == full.encode()
    since = len(images) // 2
    if since:
        delta = image_of(table, since, header(shape, since, history.epoch))
        assert delta.rows == history.image(since).rows
        assert fold(images[0], [*images[1:since], delta]).encode() == full.encode()
    assert restored(shape, image_of(table, 0, full.header)).table.rows == history.table.rows


@examples(25)
@given(data=st.data())
def test_text_keys_are_numbered_and_named(data: st.DataObject) -> None:
    history = History(TEXT)
    for changes in data.draw(histories("text")):
        history.apply(changes)
    full = history.image()
    table = StructuredTable(TEXT.state, keys=2, groups=GROUPS, shape=TEXT)
    assert table.texts[0] is not None
    table.texts[0].number(pa.array(["unused"]))
    table.fill([[full]])
    assert image_of(table, 0, full.header).encode() == full.encode()


@pytest.mark.parametrize("kind", KINDS)
def test_small_images_are_written_as_large_ones_are(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = [whole(kind, epochs).encode() for epochs in range(5)]
    monkeypatch.setattr("raystream.state.images.image.SMALL", -1)
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


@pytest.mark.parametrize(
    "change",
    [
        {"base": 2},
        {"base": 4, "checkpoint": 4},
        {"operator": "other"},
        {"keys": KeyRange(0, 8)},
        {"shape": "Other(n: int64) by k0: int"},
        {"groups": 256},
    ],
)
def test_a_delta_applies_to_its_base_only(change: dict[str, Any]) -> None:
    base = whole()
    delta = replace(base, header=replace(base.header, **{"base": 4, "checkpoint": 5, **change}))
    with pytest.raises(StateError, match=r"the image of .* does not apply to the image of op"):
        fold(base, [delta])
