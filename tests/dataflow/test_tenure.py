"""The control side of an instance: what it makes of assignments, commits, keepers and answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.instances.making import make_instance
from raystream.dataflow.pieces import Header
from raystream.dataflow.plan import Plan
from raystream.dataflow.sources.recorded import Recorded
from raystream.dataflow.tenure import AfterRefusal, Storing, Tenure
from raystream.schema.types import KeyRange
from raystream.state.images.chain import FULL, NOTHING, CheckpointRequest, Size, Span
from raystream.state.images.image import ImageHeader, InputPosition
from raystream.testing import Collect
from tests.flows import Line, Rows, running, word_flow

ALL = KeyRange(0, 256)
LAST = 7


class Told(Collect):
    """A sink that notes what it is told."""

    told: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.told = []

    def commit(self, epoch: int) -> None:
        self.told.append(f"commit {epoch}")

    def close(self) -> None:
        self.told.append("close")


def planned(sink: Any = None, *, every: int = 3) -> Plan:
    rows = (tuple(Line(t, "a b") for t in range(LAST)),)
    flow = rs.Flow("words")
    lines = flow.source(Rows(Line, rows), epochs=rs.by_time(seconds=1), name="lines")
    lines.to(sink or Collect(), name="sink")
    return make_plan(flow, checkpoint_every=every)


@dataclass
class Pair:
    """A source and a sink that reads from it, step by step."""

    sink: Any = field(default_factory=Told)

    def __post_init__(self) -> None:
        plan = planned(self.sink)
        self.plan = plan
        (source, sink) = plan.vertices
        self.recorded = Recorded(plan, source, ALL, taken=0, positions=None)
        self.source: Tenure[str] = Tenure(
            make_instance(plan, source, ALL), "lines/0", storing=Storing(ships=True)
        )
        self.reader: Tenure[str] = Tenure(
            make_instance(plan, sink, ALL), "sink/0", storing=Storing(ships=True)
        )

    def step(self) -> Header:
        """Both apply an epoch."""
        source, reader = self.source.machine, self.reader.machine
        source.step(self.recorded.take(source.position + 1))
        (edge,) = self.plan.edges
        reader.receive(edge.id, source.outlets.piece(edge.id, source.position, ALL))
        return reader.step()

    def to_the_end(self) -> int:
        while not self.reader.machine.ended:
            self.step()
        return self.reader.machine.position


def header(checkpoint: int, *, ended: bool = False) -> ImageHeader:
    return ImageHeader(
        operator="sink",
        shape="",
        groups=256,
        keys=ALL,
        base=0,
        checkpoint=checkpoint,
        input_position=InputPosition(ended=ended),
    )


# ---------------------------------------------------------------------- assignments


def test_an_assignment_says_whom_to_read_and_who_reads() -> None:
    pair = Pair()
    served = Serving(0, ALL, "lines/0", "here:1")
    reads = Serving(1, ALL, "sink/0", "here:2")
    late = Serving(1, ALL, "sink/1", "here:3", first=5, candidate=True)
    assignment = Assignment(2, (served, reads, late), checkpoints=(4,))
    routes = pair.source.assign(assignment)
    assert routes is not None
    assert routes.readers == {(0, "sink/0"): 1, (0, "sink/1"): 5}
    assert set(routes.candidates) == {(0, "sink/1")}
    assert not routes.reads
    assert pair.source.machine.checkpoints.due(4)
    routes = pair.reader.assign(assignment)
    assert routes is not None
    assert {name: s.address for name, (_, s) in routes.reads.items()} == {(0, "lines/0"): "here:1"}


def test_a_source_skips_checkpoints_only_while_it_has_no_other_beside_it() -> None:
    """Another source may be at an epoch from which the skipped one is the next to commit."""
    pair = Pair()
    one, two = (Serving(0, ALL, f"lines/{i}", f"here:{i}") for i in range(2))
    checkpoints = pair.source.machine.checkpoints
    for version, serving, stop in ((1, (one,), 50), (2, (one, two), 3), (3, (one,), 50)):
        assert pair.source.assign(Assignment(version, serving)) is not None
        assert checkpoints.stop(1, 50) == stop


@pytest.mark.parametrize("version", [1, 2])
def test_an_assignment_that_is_not_newer_is_ignored(version: int) -> None:
    tenure = Pair().source
    assert tenure.assign(Assignment(2, checkpoints=(4,))) is not None
    assert tenure.assign(Assignment(version, checkpoints=(5,))) is None
    assert tenure.version == 2
    assert not tenure.machine.checkpoints.due(5)


def test_readers_of_an_instance_that_was_replaced_ask_after_its_checkpoint() -> None:
    plan = planned()
    tenure: Tenure[str] = Tenure(make_instance(plan, plan.vertices[0], ALL), committed=3)
    routes = tenure.assign(Assignment(1, (Serving(1, ALL, "sink/0", "here:2"),)))
    assert routes is not None and routes.readers == {(0, "sink/0"): 4}
    assert [log.next for log in tenure.machine.outlets.logs.values()] == [4]


# ---------------------------------------------------------------------- commits


def test_a_commit_trims_and_publishes_when_the_instance_acts() -> None:
    pair = Pair()
    log = pair.source.machine.outlets.logs[0]
    for _ in range(4):
        pair.step()
    for tenure in (pair.source, pair.reader):
        tenure.commit(3, 2)
    assert log.first == 1 and not pair.reader.committed
    for tenure in (pair.source, pair.reader):
        assert not tenure.act()
    assert log.first == 4
    assert pair.reader.committed == 3
    assert pair.reader.published_upto == 2
    assert pair.reader.machine.sink.told == ["commit 2"]  # type: ignore[union-attr]


def test_what_was_acted_on_is_not_done_again() -> None:
    pair = Pair()
    for _ in range(4):
        pair.step()
    for epoch, upto in ((3, 3), (3, 3), (0, 1), (2, 0)):
        pair.reader.commit(epoch, upto)
        pair.reader.act()
    assert pair.reader.machine.sink.told == ["commit 3"]  # type: ignore[union-attr]
    assert pair.reader.progress().committed == 3


def test_logs_are_trimmed_bit_by_bit() -> None:
    pair = Pair()
    log = pair.source.machine.outlets.logs[0]
    pair.to_the_end()
    pair.source.commit(5, 0)
    for first in (3, 5, 6):
        pair.source.act(2)
        assert log.first == first


def test_a_source_is_over_when_its_last_epoch_is_committed() -> None:
    pair = Pair()
    last = pair.to_the_end()
    pair.source.commit(last - 1, last)
    assert not pair.source.act() and not pair.source.over
    pair.source.commit(last, 0)
    assert pair.source.act() and pair.source.over
    assert not pair.source.act(), "it says so once"


def test_a_sink_is_over_when_its_last_epoch_may_be_published() -> None:
    pair = Pair()
    last = pair.to_the_end()
    pair.reader.commit(last, last - 1)
    assert not pair.reader.act() and not pair.reader.progress().closed
    pair.reader.commit(last, last)
    assert pair.reader.act() and pair.reader.progress().closed
    pair.reader.commit(last + 3, last + 3)
    assert not pair.reader.act()
    told = pair.reader.machine.sink.told  # type: ignore[union-attr]
    assert told == [f"commit {last - 1}", f"commit {last}", "close"], "nothing after it was closed"


@given(
    st.lists(st.tuples(st.sampled_from(["step", "act"]), st.integers(0, 12), st.integers(0, 12)))
)
def test_commits_may_come_in_any_order_and_twice(calls: list[tuple[str, int, int]]) -> None:
    """A sink publishes ever later epochs, is closed once, and is told of nothing after that."""
    pair = Pair()
    for what, epoch, upto in calls:
        if what == "step" and not pair.reader.machine.ended:
            pair.step()
        position = pair.reader.machine.position
        pair.reader.commit(min(epoch, position), min(upto, position))
        before = pair.reader.published_upto
        over = pair.reader.act()
        assert pair.reader.published_upto >= before
        assert over <= pair.reader.over
    told = pair.reader.machine.sink.told  # type: ignore[union-attr]
    epochs = [int(t.removeprefix("commit ")) for t in told if t != "close"]
    assert epochs == sorted(set(epochs))
    assert told.count("close") == pair.reader.over
    assert "close" not in told[:-1]
    at = pair.reader.machine
    assert pair.reader.over == (at.ended and pair.reader.published_upto >= at.position)


# ---------------------------------------------------------------------- keepers


@pytest.mark.parametrize(
    ("keepers", "whole"), [(("a",), True), (("b", "a"), True), (("a", "c"), False), ((), False)]
)
def test_a_delta_follows_a_restore_if_all_keepers_hold_what_was_restored(
    keepers: tuple[str, ...], whole: bool
) -> None:
    storing: Storing[str] = Storing(7, holders={"a", "b"})
    storing.sizes = [Size(100, 10)]
    assert not storing.kept_by(keepers, 3, 7, ended=False)
    assert storing.choice == (3, keepers, 7)
    assert storing.chain.next(10) == (CheckpointRequest(7) if whole else FULL)
    assert not storing.kept_by(keepers, 3, 9, ended=False)
    assert storing.choice.since == 7, "what it stores later, these keepers hold"
    assert not storing.kept_by(("a",), 4, 9, ended=False)
    assert storing.choice.since == 9
    assert storing.chain.next(10) == FULL, "later they may have dropped it"


def test_the_checkpoint_after_one_that_was_not_stored_is_full() -> None:
    storing: Storing[str] = Storing(0)
    storing.kept_by(("a",), 1, 0, ended=False)
    storing.chain.made(FULL, 3)
    assert not storing.answered(header(3), NOTHING, storing.choice, held=True)
    assert storing.chain.next(10) == CheckpointRequest(3)
    storing.chain.made(CheckpointRequest(3), 6)
    assert not storing.answered(header(6), NOTHING, storing.choice, held=False)
    assert storing.chain.next(10) == FULL
    assert storing.chain.stored == Span(0, 3)


def test_an_end_is_stored_again_until_the_present_keepers_hold_it() -> None:
    storing: Storing[str] = Storing(0)
    assert not storing.kept_by(("a",), 1, 0, ended=False)
    first = storing.choice
    assert storing.kept_at(8, ended=True) == 0
    assert storing.answered(header(8, ended=True), NOTHING, first, held=False), "no other comes"
    assert not storing.answered(header(8, ended=True), NOTHING, first, held=True)
    assert storing.kept_by(("b",), 2, 8, ended=True), "they do not have it"
    assert storing.kept_at(8, ended=True) == 8, "they hold nothing of what was stored before"
    assert not storing.answered(header(8, ended=True), NOTHING, first, held=True), "late"
    assert storing.kept_at(8, ended=True) == 8
    assert not storing.answered(header(8, ended=True), NOTHING, storing.choice, held=True)
    assert storing.kept_at(8, ended=True) == 7, "they hold the end"


def test_an_instance_that_ships_nothing_only_notes_its_keepers() -> None:
    storing: Storing[str] = Storing(5, ships=False)
    assert not storing.kept_by(("a",), 2, 9, ended=True)
    assert storing.choice == (2, ("a",), 9)


def test_progress_says_what_is_stored_and_by_which_choice() -> None:
    pair = Pair()
    reader = pair.reader
    assert not reader.kept_by(("a",), 1)
    for _ in range(3):
        last = pair.step()
    assert reader.takes_checkpoint(last) and last.epoch == 3
    wanted = reader.next_checkpoint()
    assert wanted == FULL
    captured = reader.capture(wanted)
    reader.storing.chain.made(wanted, captured.header.checkpoint)
    assert reader.progress().stored == 0
    reader.storing.answered(captured.header, NOTHING, reader.storing.choice, held=True)
    assert not reader.kept_by(("b",), 2)
    said = reader.progress(view=4, unstored="no room")
    assert (said.stored, said.kept, said.kept_at) == (3, 2, 3)
    assert (said.view, said.unstored, said.name) == (4, "no room", "sink/0")


def test_without_checkpoints_all_that_was_applied_counts_as_stored() -> None:
    plan = planned()
    tenure: Tenure[str] = Tenure(make_instance(plan, plan.vertices[0], ALL))
    tenure.machine.position = 3
    assert tenure.progress().stored == 3
    assert not tenure.takes_checkpoint(Header(3, ALL, 0, True, False))


# ---------------------------------------------------------------------- refusals, changes


def test_what_to_do_when_a_log_begins_later() -> None:
    pair = Pair()
    pair.step()
    reader = pair.reader
    assert reader.refused(1) is AfterRefusal.ASK_AGAIN
    assert reader.refused(2) is AfterRefusal.FAIL
    last = pair.to_the_end()
    assert reader.refused(last + 1) is AfterRefusal.LEAVE


def test_an_owner_says_what_has_changed_since_a_checkpoint() -> None:
    plan = make_plan(word_flow(Collect(), running), checkpoint_every=3)
    keyed = next(v for v in plan.vertices if v.spec is not None)
    owner: Tenure[str] = Tenure(make_instance(plan, keyed, ALL), "running/0")
    assert owner.changes_since(0) is None
    owner.machine.position = 4
    captured = owner.changes_since(0)
    assert captured is not None and captured.header.checkpoint == 4
    taker: Tenure[str] = Tenure(make_instance(plan, keyed, ALL), "running/1")
    taker.advance(captured.image())
    assert taker.machine.position == 4
    assert taker.input_position is not None and not taker.input_position.ended
