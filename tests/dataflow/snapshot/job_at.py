"""Jobs that have come to an epoch, and instances that know nothing yet."""

from __future__ import annotations

from collections.abc import Callable

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.inputs import ReceivingInstance
from raystream.dataflow.instances.making import make_receiving
from raystream.local.job import LocalJob
from raystream.schema.types import KeyRange
from raystream.testing import Collect
from tests.flows import CompiledLedger, Ledger, ledger_flow, running, word_flow

Build = Callable[[Collect], rs.Flow]


def one(sink: Collect) -> rs.Flow:
    return ledger_flow(sink, op=Ledger(), seconds=10)


def two(sink: Collect) -> rs.Flow:
    return ledger_flow(sink, op=CompiledLedger(), seconds=10)


def words(sink: Collect) -> rs.Flow:
    return word_flow(sink, running)


def job_at(build: Build, epochs: int) -> LocalJob:
    job = LocalJob(make_plan(build(Collect())))
    for _ in range(epochs):
        job.turn()
    return job


def fresh(build: Build, name: str) -> ReceivingInstance:
    plan = make_plan(build(Collect()))
    vertex = plan.vertex(name)
    return make_receiving(plan, vertex, KeyRange(0, plan.groups))
