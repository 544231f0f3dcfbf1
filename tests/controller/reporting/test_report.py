"""What an instance says of itself, and what is kept of what all say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raystream.controller.planning.plans import make_plan
from raystream.controller.reporting.report import SAMPLES_MAX, Sample, Samples, totals
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.progress import Progress, progress_of
from raystream.dataflow.sources.recorded import Recorded
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from raystream.state.images.chain import Span
from raystream.testing import Collect
from tests.flows import running, word_flow


class Steps(SourceInstance):
    """Publishes its last epoch, on another thread as it were, whenever one looks at an attribute
    that a report is made of."""

    watched = ""
    last: Any = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name == object.__getattribute__(self, "watched"):
            self.watched = ""
            self.step(self.last)
        return found


def test_who_is_said_to_have_ended_is_at_its_end() -> None:
    """Else the floor might pass an end that is not stored."""
    plan = make_plan(word_flow(Collect(), running))
    for watched in ("position", "ended", "watermark"):
        keys = KeyRange(0, plan.groups)
        machine = Steps(plan, plan.vertices[0], keys)
        recorded = Recorded(plan, plan.vertices[0], keys)
        taken = recorded.take(1)
        while not taken.ended:
            machine.step(taken)
            taken = recorded.take(machine.position + 1)
        machine.last = taken
        machine.watched = watched
        said = progress_of(machine, 0)
        assert machine.ended
        assert not said.ended or said.position == machine.position, watched


def test_who_passed_an_epoch_as_no_cut_does_not_say_that_it_is_stored() -> None:
    """Although later cuts are."""
    plan = replace(make_plan(word_flow(Collect(), running)), checkpoint_every=2)
    keys = KeyRange(0, plan.groups)
    machine = SourceInstance(plan, plan.vertices[0], keys)
    recorded = Recorded(plan, plan.vertices[0], keys)
    for epoch in (1, 2):
        machine.step(recorded.take(epoch))
    assert progress_of(machine, 0, stored=Span(0, 2)).since == 0
    machine.checkpoints.ask([1])
    assert progress_of(machine, 0, stored=Span(0, 2)).since == 2


def test_an_operator_that_is_not_in_a_report_is_refused() -> None:
    report = word_flow(Collect(), running).run()
    assert report.operator("running").name == "running"
    with pytest.raises(ConfigError, match="there is no such operator") as refused:
        report.operator("nobody")
    assert "running" in refused.value.hint
    assert refused.value.where is not None and refused.value.where.file == __file__


def test_samples_of_a_long_job_are_bounded_and_the_newest_are_all_there() -> None:
    samples, taken = Samples(), []
    for i in range(1, 10 * SAMPLES_MAX):
        assert samples.due(i + 0.25) and not samples.due(i - 0.25)
        taken.append(i + 0.125)
        samples.add(Sample(taken[-1], {}))
        assert len(samples.after(0.0)) <= SAMPLES_MAX
    kept = [s.t for s in samples.after(0.0)]
    newest = SAMPLES_MAX // 2
    assert kept[-newest:] == taken[-newest:]
    assert kept[0] == taken[0] and set(kept) <= set(taken) and kept == sorted(kept)
    assert [s.t for s in samples.after(kept[-3])] == kept[-2:]


def test_samples_after_a_pause_are_not_made_up_for() -> None:
    samples = Samples()
    samples.add(Sample(60.5, {}))
    assert not samples.due(60.9) and samples.due(61.0)


def test_the_last_sample_is_at_the_end_however_late_that_is_known() -> None:
    samples = Samples()
    for t in (1.0, 2.0, 3.0):
        samples.add(Sample(t, {}))
    assert [s.t for s in samples.ended(Sample(2.5, {}))] == [1.0, 2.0, 2.5]


def test_an_operator_is_not_at_the_end_of_an_instance_that_has_ended() -> None:
    """As of a source with more instances than splits."""

    def said(instance: int, position: int, *, ended: bool) -> Progress:
        return Progress(
            vertex="lines",
            instance=instance,
            position=position,
            ended=ended,
        )

    over, *going = said(0, 1, ended=True), said(1, 9, ended=False), said(2, 8, ended=False)
    (lines,) = totals([over, *going])
    assert (lines.position, lines.ended) == (8, False)
    (lines,) = totals([over, said(1, 9, ended=True)])
    assert (lines.position, lines.ended) == (9, True)
