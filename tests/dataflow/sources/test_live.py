"""Splits that cannot be read again: what two processes receive is recorded once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources import live
from raystream.dataflow.sources.live import Entry, LiveSplit, Sent, decoded
from raystream.errors import InternalError
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER
from tests.examples import examples


class Tick(NamedTuple):
    time: int
    text: str | None


SCHEMA = record_schema(Tick)


def rows(*ticks: tuple[int, str | None]) -> Columns:
    return from_records(SCHEMA, [Tick(*t) for t in ticks])


def split(writer: str, position: int = 0) -> LiveSplit:
    return LiveSplit(SCHEMA, writer, "lane", "0:lane", "time", 0, None, position, BEFORE_ALL)


def ticks(parts: list[Columns]) -> list[tuple[Any, ...]]:
    return [tuple(r) for part in parts for r in rs.Batch._of(part).records()]


def test_a_boundary_holds_the_rows_and_any_reader_takes_them_from_it() -> None:
    first = split("p")
    first.add(1, rows((3, "secret"), (5, None)))
    first.add(2, rows((4, "c")))
    held = first.wanted()
    assert held[:3] == (3, 5, False)
    assert "secret" not in repr(held)
    other = split("q")
    assert other.reaches(held)
    assert (
        ticks(other.take(held)) == ticks(first.take(held)) == [(3, "secret"), (5, None), (4, "c")]
    )
    assert (other.position, other.watermark, first.position) == (3, 5, 3)
    assert (first.acknowledged, other.acknowledged) == (2, None)


def test_what_has_come_and_is_not_in_the_boundary_that_holds_comes_with_the_next() -> None:
    one, two = split("p"), split("q")
    one.add(1, rows((1, "of p")))
    two.add(1, rows((1, "of q")))
    held = one.wanted()
    two.wanted()
    assert ticks(two.take(held)) == [(1, "of p")]
    assert two.acknowledged is None
    again = two.wanted()
    assert again.position == 2
    assert ticks(two.take(again)) == [(1, "of q")]
    assert two.acknowledged == 1


def test_equal_rows_of_two_processes_are_two_rows() -> None:
    one, two = split("p"), split("q")
    for each in (one, two):
        each.add(1, rows((1, "same")))
    two.take(one.wanted())
    assert two.wanted().position == 2


def test_an_entry_has_its_limit_and_the_end_waits_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "ENTRY_BYTES", 1)
    lane = split("p")
    lane.add(1, rows((1, "a")))
    lane.add(2, rows((2, "b")))
    lane.done = True
    first = lane.wanted()
    assert (first.position, first.watermark, first.ended) == (1, 1, False)
    lane.take(first)
    last = lane.wanted()
    assert (last.position, last.watermark, last.ended) == (2, NEVER, True)
    assert lane.pending_bytes > 0
    lane.take(last)
    assert lane.pending_bytes == 0


def test_an_epoch_without_rows_holds_none() -> None:
    lane = split("p", 7)
    held = lane.wanted()
    assert held == Boundary(7, BEFORE_ALL, False)
    assert lane.take(held) == []


def test_an_end_that_another_process_has_recorded_is_the_end() -> None:
    lane = split("p")
    lane.add(1, rows((1, "too late")))
    lane.take(Boundary(0, NEVER, True))
    assert (lane.done, lane.acknowledged) == (True, None)
    assert lane.wanted() == Boundary(0, NEVER, True)
    later = LiveSplit(SCHEMA, "q", "lane", "0:lane", "time", 0, None, 3, NEVER)
    assert later.wanted() == Boundary(3, NEVER, True)


@pytest.mark.parametrize(
    "rows_", [b"\x93", b"nonsense", Entry("p", 1, rows((1, "a"))).encode()[:-3]]
)
def test_damaged_rows_are_named_and_not_shown(rows_: bytes) -> None:
    with pytest.raises(InternalError, match="recorded rows of Tick are damaged"):
        decoded(SCHEMA, rows_)


def test_a_boundary_that_does_not_follow_is_refused() -> None:
    with pytest.raises(InternalError, match="lane is recorded up to 9, which is not 7 and 0 rows"):
        split("p", 7).take(Boundary(9, 0, False))


@examples(200)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("pq")),  # a batch comes to each of these
            st.sampled_from("pq"),  # this one is the first to claim the epoch
        ),
        max_size=12,
    )
)
def test_two_feeders_record_everything_once_and_agree(story: list[tuple[list[str], str]]) -> None:
    lanes, recorded = {name: split(name) for name in "pq"}, {"p": [], "q": []}  # type: ignore[var-annotated]
    count = {"p": 0, "q": 0}
    for came, first in [*story, ([], "p"), ([], "q")]:
        for name in came:
            count[name] += 1
            lanes[name].add(count[name], rows((count[name], name)))
        wanted = {name: lane.wanted() for name, lane in lanes.items()}
        for name, lane in lanes.items():
            recorded[name] += ticks(lane.take(wanted[first]))
    assert recorded["p"] == recorded["q"]
    for name, lane in lanes.items():
        mine = [time for time, who in recorded["p"] if who == name]
        assert mine == list(range(1, count[name] + 1))
        assert lane.acknowledged == (count[name] or None)


DAY = int(rs.Source.sender_seconds)


def test_a_repeated_batch_is_left_out_and_acknowledged() -> None:
    lane = split("p")
    lane.add(1, rows((1, "a")), Sent("c", 5, 10))
    lane.add(2, rows((1, "a")), Sent("c", 5, 11))  # while the first is pending
    held = lane.wanted()
    assert ticks(lane.take(held)) == [(1, "a")]
    assert (lane.acknowledged, lane.senders) == (2, (("c", 5, 10),))
    lane.add(3, rows((9, "late")), Sent("c", 4, 12))
    lane.add(4, rows((2, "b")), Sent("d", 4, 12))
    again = lane.wanted()
    assert (again.position, again.watermark) == (2, 2)
    assert ticks(lane.take(again)) == [(2, "b")]
    assert (lane.acknowledged, lane.senders) == (4, (("c", 5, 10), ("d", 4, 12)))


def test_what_another_process_has_recorded_of_a_sender_is_left_out_of_what_is_pending() -> None:
    one, two = split("p"), split("q")
    for each in (one, two):
        each.add(1, rows((1, "a")), Sent("c", 1, 10))
    two.add(2, rows((2, "b")), Sent("c", 2, 10))
    held = one.wanted()
    assert ticks(one.take(held)) == ticks(two.take(held)) == [(1, "a")]
    assert two.acknowledged is None
    again = two.wanted()
    assert ticks(two.take(again)) == ticks(one.take(again)) == [(2, "b")]
    assert (two.acknowledged, one.senders) == (2, two.senders)


def test_what_is_known_of_senders_goes_on_from_a_checkpoint_and_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = split("p")
    for i, (name, at) in enumerate([("a", 10), ("b", 20), ("c", 20 + DAY)]):
        lane.add(i, rows((1, name)), Sent(name, 7, at))
        lane.take(lane.wanted())
        if name == "b":
            assert lane.senders == (("a", 7, 10), ("b", 7, 20))
    assert lane.senders == (("c", 7, 20 + DAY),)
    later = split("q", lane.position)
    later.knows(lane.senders)
    later.add(1, rows((1, "c")), Sent("c", 7, 5))
    assert later.wanted().position == lane.position
    monkeypatch.setattr(live, "SENDERS", 2)
    for i, name in enumerate("de"):
        lane.add(10 + i, rows((1, name)), Sent(name, 1, 5))  # a clock that is behind
    lane.take(lane.wanted())
    assert lane.senders == (("d", 1, 20 + DAY), ("e", 1, 20 + DAY))


@examples(300)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("cd"), st.sampled_from("pq"))),  # who sends, where
            st.sampled_from("pq"),  # this one is the first to claim the epoch
        ),
        max_size=12,
    )
)
def test_clients_that_repeat_are_recorded_once(
    story: list[tuple[list[tuple[str, str]], str]],
) -> None:
    """A client sends a batch until one of the processes that got it has acknowledged it."""
    lanes, recorded = {name: split(name) for name in "pq"}, {"p": [], "q": []}  # type: ignore[var-annotated]
    sequence, sent = {"c": 1, "d": 1}, {"c": {}, "d": {}}  # type: ignore[var-annotated]
    number = 0
    for came, first in [*story, ([], "p"), ([], "q")]:
        for client, to in came:
            number += 1
            batch = rows((sequence[client], client))
            lanes[to].add(number, batch, Sent(client, sequence[client], 0))
            sent[client].setdefault(to, number)
        wanted = {name: lane.wanted() for name, lane in lanes.items()}
        for name, lane in lanes.items():
            recorded[name] += ticks(lane.take(wanted[first]))
            for client, to in sent.items():
                if to.get(name, number + 1) <= (lane.acknowledged or 0):
                    sequence[client] += 1
                    to.clear()
    assert recorded["p"] == recorded["q"]
    assert lanes["p"].senders == lanes["q"].senders
    for client, next_one in sequence.items():
        numbers = [n for n, who in recorded["p"] if who == client]
        assert numbers in ([*range(1, next_one)], [*range(1, next_one + 1)])


def numbered(split: LiveSplit, number: int, *sequences: int) -> None:
    """A batch of a log comes to a split: its rows say their sequences."""
    each = np.array(sequences)
    batch = rows(*((n, "log") for n in sequences))
    split.add(number, batch, Sent("log", sequences[-1], 0, each))


@examples(200)
@given(st.data())
def test_a_log_that_is_cut_into_other_batches_is_recorded_once(data: st.DataObject) -> None:
    """Two processes read the same log from where it was recorded, each in batches of its own."""
    lanes = {name: split(name) for name in "pq"}
    at = dict.fromkeys("pq", 0)
    count = dict.fromkeys("pq", 0)
    found: list[Any] = []
    for _ in range(data.draw(st.integers(1, 12))):
        for name in data.draw(st.lists(st.sampled_from("pq"))):
            size = data.draw(st.integers(1, 4))
            count[name] += 1
            # Rows of one transaction have one sequence, and come in one batch.
            numbers = [n for n in range(at[name] + 1, at[name] + size + 1) for _ in range(n % 3)]
            at[name] += size
            if numbers:
                numbered(lanes[name], count[name], *numbers)
        held = lanes[data.draw(st.sampled_from("pq"))].wanted()
        taken = [ticks(lane.take(held)) for lane in lanes.values()]
        assert taken[0] == taken[1]
        found += taken[0]
    assert [n for n, _ in found] == [n for n in range(1, len(found) + 1) for _ in range(n % 3)][
        : len(found)
    ]


def test_a_sequence_without_rows_is_recorded_and_stored() -> None:
    lane, other = split("p"), split("q")
    lane.add(1, rows(), Sent("log", 7, 3))
    held = lane.wanted()
    assert (held.position, bool(held.rows)) == (0, True)
    assert ticks(other.take(held)) == ticks(lane.take(held)) == []
    assert lane.senders == other.senders == (("log", 7, 3),)
    assert (lane.acknowledged, other.heard) == (1, {"log": 7})
    numbered(other, 1, 6, 7, 8)
    assert ticks(other.take(other.wanted())) == [(8, "log")]
