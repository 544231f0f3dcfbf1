"""Upgrades from outside: a running job is asked to go over to the code of another flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray import cloudpickle

from raystream.actors.client.changing import changed_job
from raystream.actors.cluster.by_value import by_value
from raystream.actors.cluster.pickling import refuse_unpicklable
from raystream.actors.control.answers import RunningCode
from raystream.api.flow import Flow
from raystream.controller.planning.upgrading import outline_of_flow, refuse_upgrade
from raystream.controller.protocol.history import UpgradeRecord
from raystream.controller.protocol.upgrading.requests import UPGRADE_SECONDS, UpgradeRequest
from raystream.dataflow.upgrading.versions import encoded
from raystream.errors import JobError

SETTLE_SECONDS = UPGRADE_SECONDS + 30.0
"""How long a job may take to settle an upgrade, or to give it up."""
dumps: Any = cloudpickle.dumps  # it ships no types


def upgrade(job: str, flow: Flow, address: str, tell: Callable[[str], None]) -> UpgradeRecord:
    """Have a running job go over to the code of another flow. Returns what was done, once the
    switch epoch is settled.

    Args:
        job: the name of the job, or of one of its runs.
        flow: the flow with the new code. Its streams are those of the job.
        address: of the cluster.
        tell: is told what is waited for.

    Raises:
        ConfigError: there is no such job or cluster, or the job refused; it says why.
        StateError: the flow has other streams, or an operator that cannot take its rows.
        GraphError: the flow is wrong, or cannot be carried to other processes.
        JobError: the job does not answer, or could not go over; it says why.
    """
    with changed_job(job, address, "code") as asked:
        before = asked.now()
        wanted = request_of(before, flow)
        asked.ask(asked.controller.upgrade.remote(wanted))
        tell(f"{asked.run} gets the code of {wanted.name or flow.name}")

        def made(code: RunningCode) -> UpgradeRecord | None:
            return next((u for u in code.ended if u not in before.ended), None)

        record: UpgradeRecord = asked.until(made, lambda _: "go over to other code", SETTLE_SECONDS)
        if record.failed:
            raise JobError(f"{asked.run} keeps its code: {record.failed}")
        return record


def request_of(running: RunningCode, flow: Flow) -> UpgradeRequest:
    """What is asked of a job that is to go over to the code of a flow.

    Raises:
        StateError: it cannot. GraphError: the flow is wrong, or cannot be carried.
    """
    outline, vertices = outline_of_flow(flow)
    refuse_upgrade(running.outline, outline, vertices)
    code = [replace(v, source=None, sink=None) for v in vertices]  # the job keeps its own
    with by_value(code):
        refuse_unpicklable(code)
        encoded_code = encoded(code, dumps)
    return UpgradeRequest(
        code=encoded_code, name=flow.code, shapes=outline.shapes, base=running.number
    )
