"""The output of a flow when nothing disturbs it, which every schedule has to give."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module

from raystream.api.flow import Flow
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.upgrading import outline_of, refuse_upgrade
from raystream.controller.protocol.saving import shapes_of
from raystream.controller.protocol.upgrading.requests import UpgradeRequest
from raystream.controller.reporting.report import totals
from raystream.dataflow.asking.answers import is_answer
from raystream.dataflow.asking.claiming import claiming
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress
from raystream.dataflow.register import Boundary
from raystream.dataflow.upgrading.versions import CodeVersion, encoded
from raystream.errors import ConfigError
from raystream.local.job import LocalJob
from raystream.local.source import Ends
from raystream.schema.types import KeyRange
from raystream.simulation.flows import FLOWS
from raystream.simulation.processes.sinks import Reference
from raystream.simulation.upgrades.other_flows import OTHER_VERSIONS
from raystream.simulation.world import Wrong
from raystream.state.keys import even_ranges
from raystream.testing.collect import Collect
from raystream.testing.same import difference


@cache
def planned(flow: str, instances: tuple[int, ...]) -> tuple[Plan, Reference | None]:
    """The plan of a flow, and what its sinks are to be given: the same bits as with one instance.
    None for a flow whose epochs are cut by arrival, or that asks the world: there it depends on
    what is recorded.

    Args:
        instances: of each vertex in turn, over again.
    """
    plan = plan_of(flow)
    counts = {v.id: instances[i % len(instances)] for i, v in enumerate(plan.vertices)}
    plan = replace(plan, ranges={v: even_ranges(plan.groups, n) for v, n in counts.items()})
    (sink,) = (v.id for v in plan.vertices if v.kind == "sink")
    return plan, None if claiming(plan) else _reference(flow, counts[sink])


@cache
def plan_of(flow: str) -> Plan:
    """The plan of a flow with one instance of everything, made once."""
    plan = make_plan(_flow(flow)(Collect()))
    if sum(v.kind == "sink" for v in plan.vertices) != 1:
        raise ConfigError(f"flow {flow!r} must have one sink to be simulated")
    return plan


Totals = dict[str, tuple[int, int, int, dict[str, int]]]
"""By operator the records that came in, went out and were late, and those of each port."""


@cache
def totals_of_flow(flow: str) -> Totals:
    """The totals of an undisturbed run. They do not depend on the number of instances."""
    return _run_alone(plan_of(flow))[1]


def counted_of(progress: Iterable[Progress]) -> Totals:
    """What instances have counted, by operator."""
    return {o.name: (o.records_in, o.records_out, o.late, o.by_port) for o in totals(progress)}


@cache
def _reference(flow: str, sinks: int) -> Reference:
    """What `sinks` instances of the sink are given in an undisturbed run. The bits do not depend on
    the number of any other instances."""
    whole, _ = _run_alone(plan_of(flow))
    sink, *_ = (v for v in plan_of(flow).vertices if v.kind == "sink")
    ranges = {**plan_of(flow).ranges, sink.id: even_ranges(plan_of(flow).groups, sinks)}
    parts, _ = _run_alone(replace(plan_of(flow), ranges=ranges))
    if wrong := difference(parts.by_epoch(), whole.by_epoch()):
        raise Wrong(f"{flow} with {sinks} instances of its sink: {wrong}")
    return _given(plan_of(flow), parts)


def _run_alone(plan: Plan, boundaries: Ends | None = None) -> tuple[Collect, Totals]:
    """What the sink of a plan is given in an undisturbed run, and what that counts."""
    sink = Collect()
    vertices = [replace(v, sink=sink) if v.kind == "sink" else v for v in plan.vertices]
    job = LocalJob(replace(plan, vertices=vertices), boundaries=boundaries)
    job.run()
    return sink, counted_of(job.progress())


def _given(plan: Plan, sink: Collect) -> Reference:
    expected = {part: list(batch.records()) for part, batch in sink.parts.items()}
    sinks = [v.id for v in plan.vertices if v.kind == "sink"]
    return dict.fromkeys(sinks, expected)


def repeated(plan: Plan, boundaries: Ends) -> tuple[Reference, Totals]:
    """What sinks are to be given, and the totals, when epochs end at these boundaries."""
    one = {v.id: plan.ranges[v.id] if v.kind == "sink" else [KeyRange(0, plan.groups)]
           for v in plan.vertices}  # fmt: skip
    sink, counted = _run_alone(replace(plan, ranges=one), dict(boundaries))
    return _given(plan, sink), counted


def other_version(flow: str) -> UpgradeRequest:
    """The other version of a flow, as it is asked for.

    Raises:
        KeyError: the flow has none.
    """
    return _as_asked(flow, make_plan(OTHER_VERSIONS[flow](Collect())), "other")


def first_version(flow: str) -> UpgradeRequest:
    """The flow as it is, to go back to it."""
    return _as_asked(flow, plan_of(flow), "first")


def _as_asked(flow: str, plan: Plan, name: str) -> UpgradeRequest:
    refuse_upgrade(outline_of(plan_of(flow)), outline_of(plan), plan.vertices)
    code, shapes = encoded(plan.vertices, pickle.dumps), shapes_of(plan.vertices)
    return UpgradeRequest(code=code, name=name, shapes=shapes, base=0)


def upgraded(
    plan: Plan, boundaries: Ends, versions: Sequence[CodeVersion]
) -> tuple[Reference, Totals]:
    """What sinks are to be given, and the totals, when the code was changed. Each version runs in a
    job of its own, which goes on from what is stored at the end of the one before: nothing here
    goes over to other code in between."""
    one = {v.id: plan.ranges[v.id] if v.kind == "sink" else [KeyRange(0, plan.groups)]
           for v in plan.vertices}  # fmt: skip
    plan = replace(plan, ranges=one)
    sink, stored, at, number = Collect(), None, 0, 0
    vertices = [replace(v, sink=sink) if v.kind == "sink" else v for v in plan.vertices]
    for version in (*versions, None):
        ends = answers_of(boundaries, number)
        job = _KnowingJob(replace(plan, vertices=vertices), boundaries=ends, resume=stored)
        while not job.ended and (version is None or at < version.after):
            job.turn()
            at = max(machine.position for machine in job.machines)
        if version is None or job.ended:
            return _given(plan, sink), counted_of(job.progress())
        stored = {
            plan.vertices[v].name: [[i] for i in images] for v, images in job.stored(at).items()
        }
        vertices, number = [version.of(v) for v in vertices], version.number
    raise AssertionError("the last version runs to the end")


class _KnowingJob(LocalJob):
    """A job that waits for the answer of the world, so that all its instances are at the same epoch
    after each turn. Of a job that came to its end all answers are known."""

    def _deliver(self, machine: Instance) -> None:
        super()._deliver(machine)
        self.askers.turn()
        while self.askers.wait():
            self.askers.turn()


def answers_of(held: Ends, number: int) -> dict[tuple[str, int], Boundary]:
    """What a job that runs one version of the code is to find recorded: of the answers those of
    that version, under the names of a first version; and where epochs of splits end."""
    found = {}
    for (name, epoch), boundary in held.items():
        entry, _, code = name.partition("@")
        if not is_answer(name):
            found[name, epoch] = boundary
        elif int(code or 0) == number:
            found[entry, epoch] = boundary
    return found


def _flow(name: str) -> Callable[[Collect], Flow]:
    if name in FLOWS:
        return FLOWS[name]
    module, _, function = name.partition(":")
    if function:
        try:
            found: Callable[[Collect], Flow] = getattr(import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"there is no flow {name}: {error}") from None
        return found
    raise ConfigError(
        f"there is no flow {name!r}", hint=f"There are {', '.join(FLOWS)}, and module:function."
    )
