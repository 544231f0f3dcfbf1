"""The submitter of a job knows which code the job has gone over to."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from raystream.actors.client import code_watch
from raystream.actors.client.code_watch import CodeWatch
from raystream.dataflow.plan import Durable, Plan
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.simulation.references import planned

FIRST = CodeVersion(number=2, after=10, code=b"", settled=True)
SECOND = CodeVersion(number=5, after=20, code=b"", settled=True)


class Answers:
    """A controller that has some versions, or is dead. known: what it was asked with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.versions: tuple[CodeVersion, ...] = ()
        self.dead = False
        self.known: list[int] = []
        self.newer_code = SimpleNamespace(remote=self._asked)
        monkeypatch.setattr(code_watch, "LOOK_SECONDS", 0.0)
        monkeypatch.setattr(ray, "wait", lambda calls, timeout: (calls, []))
        monkeypatch.setattr(ray, "get", self._get)

    def _asked(self, known: int) -> str:
        self.known.append(known)
        return "a call"

    def _get(self, _: Any, timeout: float) -> tuple[CodeVersion, ...]:
        if self.dead:
            raise RayActorError
        return self.versions


def plan_of(durable: Durable | None) -> Plan:
    return replace(planned("words", (1, 1))[0], durable=durable)


def known(plan: Plan) -> tuple[CodeVersion, ...]:
    assert plan.durable is not None
    return plan.durable.versions


def test_versions_are_noted_and_stay_when_the_controller_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Answers(monkeypatch)
    plan = plan_of(Durable("a store", 1, "run"))
    watch = CodeWatch(controller, plan)
    watch.look()
    controller.versions = (FIRST,)
    watch.look()
    assert known(plan) == (FIRST,)
    controller.versions = ()  # none are newer
    watch.last()
    assert known(plan) == (FIRST,) and controller.known[-1] == 2
    controller.versions = (FIRST, SECOND)
    watch.last()
    assert known(plan) == (FIRST, SECOND)
    controller.dead = True
    watch.last()
    assert known(plan) == (FIRST, SECOND)


def test_without_a_durable_tier_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Answers(monkeypatch)
    watch = CodeWatch(controller, plan_of(None))
    watch.look()
    watch.last()
    assert controller.known == []
