"""Old names work for one version more, with a warning that points to who uses them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import raystream as rs
from raystream.controller.protocol.history import MoveRecord, Recovery
from raystream.controller.reporting.report import Committed, Sample
from raystream.errors import GraphError
from raystream.renamed import old_field, renamed
from raystream.testing import Collect, run_local
from tests.flows import Line, Rows, lines, split


@renamed(cut_every="checkpoint_every", cuts="checkpoints")
def planned(job: str, *, checkpoint_every: int = 1, checkpoints: int = 2) -> tuple[str, int, int]:
    """A function with parameters that had other names."""
    return job, checkpoint_every, checkpoints


@dataclass(frozen=True, slots=True)
class Report:
    committed: int

    floor = old_field("floor", "committed")


def test_an_argument_may_have_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match=r"cut_every of planned\(\) is called") as seen:
        assert planned("a", cut_every=5) == ("a", 5, 2)  # type: ignore[call-arg]
    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="is called checkpoint") as seen:
        assert planned("a", cut_every=5, cuts=6) == ("a", 5, 6)  # type: ignore[call-arg]
    assert len(seen) == 2


def test_new_names_warn_nobody() -> None:
    assert planned("a", checkpoint_every=5) == ("a", 5, 2)
    assert planned.__name__ == "planned"
    with pytest.raises(TypeError, match="unexpected keyword"):
        planned("a", cut_evry=5)  # type: ignore[call-arg]


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(TypeError, match="got checkpoint_every, and also cut_every, which is its"):
        planned("a", checkpoint_every=5, cut_every=5)  # type: ignore[call-arg]


def test_a_field_may_be_read_by_its_old_name() -> None:
    with pytest.warns(DeprecationWarning, match="Report.floor is called committed now") as seen:
        assert Report(3).floor == 3
    assert seen[0].filename == __file__
    assert Report(3) == Report(3) and "floor" not in repr(Report(3))


def flow() -> rs.Flow:
    made = rs.Flow("renamed")
    source = made.source(Rows(Line, lines(3)), epochs=rs.by_time(seconds=30))
    source.through(split).to(Collect())
    return made


def test_a_flow_runs_with_the_old_name_of_checkpoint_every() -> None:
    with pytest.warns(DeprecationWarning, match=r"cut_every of run\(\)") as seen:
        assert flow().run(cut_every=2).operators
    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"cut_every of run_local\(\)") as seen:
        assert run_local(flow(), cut_every=2)  # type: ignore[call-arg]
    assert seen[0].filename == __file__


def test_an_option_that_never_was_is_still_refused() -> None:
    with pytest.raises(GraphError, match="no option 'cut_evry'") as caught:
        flow().run(cut_evry=2)
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_reports_have_the_old_names_of_their_fields() -> None:
    newest = Committed(epoch=4, age=0.5, under_replicated=1)
    sample = Sample(t=1.0, operators={}, committed=newest)
    with pytest.warns(DeprecationWarning, match="Sample.floor is called committed"):
        assert sample.floor == newest
    with pytest.warns(DeprecationWarning, match="Committed.short is called"):
        assert newest.short == 1
    for record in (Recovery, MoveRecord):
        assert isinstance(vars(record)["floor"], property)
