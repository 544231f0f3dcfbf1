"""What an error says of its replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from raystream.controller.planning.resuming import durably
from raystream.controller.reporting.replays import tell_replay
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import InputError
from raystream.simulation.references import planned


def test_of_an_upgraded_job_it_says_that_a_replay_has_one_version(tmp_path: Path) -> None:
    plan = planned("words", (1, 1))[0]
    saves = Saves(open_store(tmp_path), plan.job)
    plan = durably(plan, saves, "run", None)
    first, second = InputError("a line is bad"), InputError("a line is bad")
    tell_replay(first, plan, saves)
    assert first.hint.startswith("Replay it: raystream replay MODULE:FLOW")
    assert plan.durable is not None
    plan.durable = replace(plan.durable, versions=(CodeVersion(number=1, after=30, code=b""),))
    tell_replay(second, plan, saves)
    assert "the newest began after epoch 30" in second.hint
