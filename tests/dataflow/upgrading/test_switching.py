"""An instance waits before a version that is not settled, and goes over where all do."""

from __future__ import annotations

import pytest

from raystream.dataflow.upgrading.switching import Switching
from raystream.dataflow.upgrading.versions import CodeVersion, version_at
from raystream.errors import InternalError


def version(number: int, after: int, *, settled: bool = False) -> CodeVersion:
    return CodeVersion(number=number, after=after, code=b"", settled=settled)


def test_an_instance_that_took_a_proposal_waits_until_it_is_settled() -> None:
    switching = Switching()
    switching.tell((version(1, 5),))
    assert not switching.holds(3)
    assert switching.taken == 1
    assert switching.stop(3, 9) == 5  # no step goes past it
    assert switching.holds(5)
    assert not switching.due(5)
    switching.tell((version(1, 5, settled=True),))
    assert not switching.holds(5)
    assert switching.due(5)
    assert switching.next().number == 1
    assert switching.version == 1
    assert not switching.due(5)
    assert switching.stop(5, 9) == 9


def test_an_instance_that_has_passed_the_epoch_does_not_take_the_proposal() -> None:
    switching = Switching()
    switching.tell((version(1, 5),))
    assert not switching.holds(6)
    assert switching.taken == 0
    switching.tell((version(2, 8),))  # a later one
    assert not switching.holds(6)
    assert switching.taken == 2
    assert switching.holds(8)


def test_a_proposal_that_is_taken_back_holds_nobody() -> None:
    switching = Switching()
    switching.tell((version(1, 5),))
    assert switching.holds(5)
    switching.tell(())
    assert not switching.holds(5)
    assert switching.stop(5, 9) == 9


def test_to_pass_a_settled_version_is_an_error() -> None:
    switching = Switching()
    switching.tell((version(1, 5, settled=True),))
    with pytest.raises(InternalError, match="epoch 6 was made by code of before epoch 5"):
        switching.holds(6)


def test_each_epoch_has_one_version() -> None:
    versions = (version(2, 5, settled=True), version(4, 9, settled=True), version(7, 12))
    made_by = [
        None if (v := version_at(versions, e)) is None else v.number for e in (5, 6, 9, 10, 13)
    ]
    assert made_by == [None, 2, 2, 4, 4]
