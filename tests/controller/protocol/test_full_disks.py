"""A keeper that cannot write files says so; a job that cannot commit for it ends in words."""

from __future__ import annotations

import pytest

from raystream.controller.options import Options
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.calls import KeeperUse
from raystream.controller.protocol.parts.replication import FULL_SECONDS
from raystream.errors import StateError
from tests.controller.protocol.driven import Driven

FULL = KeeperUse(600_000_000, 9_000_000_000, "its files cannot be written: No space left")


@pytest.fixture
def job() -> Driven:
    made = Driven(Options(spares=1))
    made.start()
    made.at(5)
    return made


def says(job: Driven, use: KeeperUse, seconds: float = 0.0) -> StateError | None:
    job.now += seconds
    job.hear(on.KeeperSaid(job.machine.journal.keepers[0].process, use))
    ends = job.all(do.End)
    assert all(isinstance(e.error, StateError) for e in ends)
    return ends[-1].error if ends else None  # type: ignore[return-value]


def test_what_keepers_hold_is_known(job: Driven) -> None:
    assert says(job, KeeperUse(3, 4)) is None
    assert job.machine.replication.kept == KeeperUse(3, 4) and not job.machine.replication.unstored
    job.hear(on.KeeperSaid("keeper-that-is-gone", KeeperUse(5, 6)))
    assert job.machine.replication.kept == KeeperUse(3, 4)


def test_a_job_that_cannot_commit_ends_with_the_disk_named(job: Driven) -> None:
    assert says(job, FULL) is None
    assert "No space left" in job.machine.replication.unstored
    assert says(job, FULL, FULL_SECONDS) is None
    error = says(job, FULL, 1.0)
    assert error is not None
    assert "has 0.6 GB of them in memory and 9.0 GB in files" in error.message
    assert "No space left" in error.message and "--state-folder" in error.hint


def test_a_disk_that_has_room_again_ends_nothing(job: Driven) -> None:
    says(job, FULL)
    assert says(job, KeeperUse(1, 2), FULL_SECONDS) is None
    assert not job.machine.replication.unstored
    assert says(job, FULL, 1.0) is None
    assert says(job, FULL, FULL_SECONDS) is None


def test_a_job_that_commits_goes_on(job: Driven) -> None:
    says(job, FULL)
    committed = job.machine.journal.committed
    job.at(1000)
    job.tick()
    assert job.machine.journal.committed > committed
    assert says(job, FULL, FULL_SECONDS + 1) is None
