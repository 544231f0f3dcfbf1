"""Frames of one epoch: what fits the form arrives as it was sent, all else is left to messages."""

from __future__ import annotations

import random
import struct
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.actors.network import server
from raystream.actors.network.epoch_frame import EpochDecoder, epoch_frame
from raystream.actors.network.frames import BEGINNING, EPOCH
from raystream.dataflow.pieces import ANY_CODE, Header
from raystream.errors import JobError
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.log.epoch_log import LogEntry
from raystream.testing import Collect
from tests.actors.helpers.shells import shells_of
from tests.examples import examples
from tests.flows import Rows

GROUPS = 16
WHOLE = KeyRange(0, GROUPS)
PRODUCER = KeyRange(3, 9)


class Numbers(NamedTuple):
    small: rs.Int16
    maybe: float | None
    flag: bool
    large: int


class Text(NamedTuple):
    text: str


SCHEMA = record_schema(Numbers)


def entry(sizes: list[int], header: Header | None = None, *, every: int = 1) -> LogEntry[Header]:
    """An epoch with so many records in each key group. every: of columns that skip numbers."""
    n = sum(sizes)
    records = [Numbers(i - 5, None if i % 3 else i / 7, i % 2 == 0, -i) for i in range(n * every)]
    columns = from_records(SCHEMA, records)
    if every > 1:
        columns = Columns(SCHEMA, [a[::every] for a in columns.arrays], n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return LogEntry(7, header or Header(7, PRODUCER, 70), columns, offsets)


def parted(frame: bytes) -> tuple[bytes, np.ndarray]:
    """Head and body of a frame."""
    kind, head, body = BEGINNING.unpack_from(frame)
    assert kind == EPOCH and len(frame) == BEGINNING.size + head + body
    at = BEGINNING.size + head
    assert at % 8 == 0
    return frame[BEGINNING.size : at], np.frombuffer(frame, np.uint8)[at:]


headers = st.builds(
    Header,
    st.just(7),
    st.sampled_from([PRODUCER, WHOLE]),
    st.sampled_from([BEFORE_ALL, -1, 0, NEVER]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.just(1),
    st.none(),
    code=st.sampled_from([0, 1, 7, ANY_CODE]),
)
sizes = st.lists(st.integers(0, 3), min_size=GROUPS, max_size=GROUPS)


@examples(60)
@given(sizes, headers, st.integers(0, GROUPS - 1), st.integers(1, GROUPS), st.sampled_from([1, 3]))
def test_an_epoch_arrives_as_it_was_sent(
    sizes: list[int], header: Header, lo: int, size: int, every: int
) -> None:
    keys = KeyRange(lo, min(GROUPS, lo + size))
    sent = entry(sizes, header, every=every)
    expected, offsets = sent.part(keys)
    frame = epoch_frame(sent, keys)
    if not len(expected):
        assert frame is None
        return
    assert frame is not None
    piece = EpochDecoder(SCHEMA, keys).piece(*parted(frame))
    assert piece.header == header and type(piece.header.ended) is bool
    assert list(piece.rows.records()) == list(expected.records())
    assert piece.offsets.tolist() == offsets.tolist()
    assert not any(array.flags.writeable for array in piece.rows.arrays)


def test_what_has_text_or_a_rank_is_left_to_messages() -> None:
    ranked = entry([1] * GROUPS)
    ranked = ranked._replace(rows=ranked.rows.ranked(np.arange(GROUPS)))
    texts = from_records(record_schema(Text), [Text("a")] * GROUPS)
    assert epoch_frame(ranked, WHOLE) is None
    assert epoch_frame(ranked._replace(rows=texts), WHOLE) is None


@pytest.mark.parametrize(
    "what", ["shorter", "longer", "rows", "offsets", "order", "head", "range", "text"]
)
def test_a_damaged_epoch_is_refused(what: str) -> None:
    frame = epoch_frame(entry([1] * GROUPS), WHOLE)
    assert frame is not None
    head, body = parted(frame)
    keys, schema = WHOLE, SCHEMA
    body = body.copy()
    if what == "shorter":
        body = body[:-8]
    elif what == "longer":
        body = np.concatenate([body, body[:8]])
    elif what == "rows":
        head = head[:16] + struct.pack("<I", GROUPS + 1) + head[20:]
    elif what == "offsets":
        body[8 * GROUPS] = 1  # the last one
    elif what == "order":
        body[8] = 3  # the second one: greater than the third
    elif what == "head":
        head = head[:-1]
    elif what == "range":
        keys = KeyRange(0, GROUPS - 1)
    else:
        schema = record_schema(Text)
    with pytest.raises(JobError, match="came damaged"):
        EpochDecoder(schema, keys).piece(head, body)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_nobody_sees_in_which_form_an_epoch_came(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """share: of the epochs that could have the form, how many do."""
    rng, made = random.Random(1), []

    def some(given: LogEntry[Any], keys: KeyRange) -> bytes | None:
        frame = epoch_frame(given, keys) if rng.random() < share else None
        made.append(frame is not None)
        return frame

    monkeypatch.setattr(server, "epoch_frame", some)
    flow, sink = rs.Flow("forms"), Collect()
    rows = tuple(Numbers(t % 5, None if t % 3 else 0.5, t % 2 == 0, t) for t in range(200))
    epochs = rs.by_time("large", seconds=1, speed=1000.0)
    flow.source(Rows(Numbers, (rows,)), epochs=epochs).to(sink)
    with shells_of(flow) as job:
        job.start(time.time() + 0.1)  # when there are connections, the compute thread sends
        job.watch()
    assert sink.records() == list(rows)
    assert any(made) == (share > 0) and all(made) == (share == 1)
