"""The simulated durable tier: jobs that lost all go on from it, and its checkers notice faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from raystream.controller.protocol.parts.commits import Commits
from raystream.durable import saves
from raystream.durable.manifest import named
from raystream.simulation.scenarios import Scenario, command
from raystream.simulation.simulator import Outcome, simulate

DOOMED = Scenario("windows", copies=1, recovery="state", faults=10, durable=True)
"""Keepers and instances die all the time, and there is one copy of everything."""
ELSEWHERE = replace(DOOMED, flow="arriving", faults=24)
"""Epochs after the saved checkpoint end elsewhere when it goes on."""
SEEDS = range(30, 45)
"""In some of them all is lost after a checkpoint was saved."""


def outcomes(scenario: Scenario, seeds: range) -> list[Outcome]:
    return [simulate(scenario, seed, story=True) for seed in seeds]


def told(outcome: Outcome, what: str) -> int:
    return sum(what in line for line in outcome.story)


@pytest.mark.parametrize("scenario", [DOOMED, ELSEWHERE], ids=["recorded", "arriving"])
def test_a_job_that_lost_all_goes_on_from_its_newest_saved_cut(scenario: Scenario) -> None:
    found = outcomes(scenario, SEEDS)
    wrong = [o for o in found if o.kind == "wrong"]
    assert not wrong, "\n".join(f"{o.why}\n{command(scenario, o.seed)}" for o in wrong)
    resumed = [o for o in found if told(o, "all is lost:")]
    assert resumed and all(o.kind == "right" for o in resumed)
    assert sum(told(o, " saves checkpoint ") for o in found) > len(SEEDS) / 2
    lost = [o for o in found if o.kind == "lost"]
    assert not any(told(o, " saves checkpoint ") for o in lost)


def _drops_what_is_needed(patch: pytest.MonkeyPatch) -> None:
    def images(job: str, there: dict[str, int], *_: object) -> list[str]:
        return [n for n in there if (at := named(job, n)) is not None and at.kind == "images"]

    patch.setattr(saves, "droppable", images)


def _writes_the_manifest_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(saves, "absent", lambda images, there: [])


def _shows_what_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Commits, "published_upto", property(lambda self: self._job.entry.committed))


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    _drops_what_is_needed: "is not whole",
    _writes_the_manifest_first: "is not whole",
    _shows_what_is_not_saved: "sinks are to show",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__[1:])
def test_a_broken_tier_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert any(BROKEN[broken] in simulate(DOOMED, seed).why for seed in SEEDS)
