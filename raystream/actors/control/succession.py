"""What a controller that Ray has started again finds of its job: journal, plan, processes."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from raystream.actors.control.calls import asked
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.messages.calls import KeeperActorCalls, ProcessCalls
from raystream.dataflow.plan import Plan
from raystream.errors import JobError

FIND_SECONDS = 60.0
"""How long a keeper, which may be starting, may take to show its journal. Then it counts as
dead."""


def claim(
    keepers: list[Any], least: int
) -> tuple[int, list[tuple[tuple[int, int], JournalEntry | None]]]:
    """Claim the journal at all keepers: earlier controllers cannot write it any more.

    Args:
        least: the first incarnation to try. It grows with time. The names of processes contain the
            incarnation, so that they differ from those of earlier controllers even when there is no
            journal yet.

    Returns:
        The incarnation of this controller, and the order and the newest entry of each keeper that
        has answered.
    """
    for incarnation in itertools.count(least):
        calls = [asked(k, KeeperActorCalls.claim_journal, incarnation) for k in keepers]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=FIND_SECONDS)
        found = []
        in_time = True
        for call in calls:
            with suppress(RayError):
                mine, order, entry = ray.get(call, timeout=0)
                in_time = in_time and mine
                found.append((order, entry))
        if in_time:
            return incarnation, found
    raise AssertionError("numbers do not end")


def kept_plan(keepers: list[Any]) -> Plan:
    """The plan of the job, from any keeper.

    Raises:
        JobError: no keeper shows it.
    """
    for keeper in keepers:
        with suppress(RayError):
            plan: Plan = ray.get(asked(keeper, KeeperActorCalls.plan), timeout=FIND_SECONDS)
            return plan
    raise JobError("the plan of the job is lost with the keepers that held it")


def has_begun(instance: Any) -> bool:
    """Whether a process serves a range. One that does not answer counts as one that does not."""
    try:
        return bool(ray.get(asked(instance, ProcessCalls.begun), timeout=FIND_SECONDS))
    except RayError:
        return False
