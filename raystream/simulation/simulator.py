"""The simulator: a seeded second shell over the machines that run jobs, with faults at any step.

    python -m raystream.simulation --schedules 1000 --seed 1 --flow words
    python -m raystream.simulation --scenarios tests/testing/scenarios.toml

A schedule runs a small flow once, in simulated processes that die, stop for a while and wake, lose
connections and control messages, in an order that its seed decides. Every part of its output must
be what an undisturbed run gives, bit for bit; the job must come to its end once faults stop, or say
which checkpoints are lost. There are no threads, clocks or Ray in it. Not simulated: logs that do
not fit into memory.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from raystream.controller.planning.resuming import durably
from raystream.controller.protocol.members import ProtocolOptions, seat_of
from raystream.controller.protocol.parts.journal import SEATS_FROM
from raystream.dataflow.plan import Plan
from raystream.dataflow.upgrading.versions import version_at
from raystream.durable.manifest import Saved
from raystream.errors import ConfigError, JobError, LostError, RaystreamError, Stopped
from raystream.simulation.faults import Faults, NodeCuts
from raystream.simulation.flows import FLOWS
from raystream.simulation.job import SimulatedJob
from raystream.simulation.moves import Easer, Mover, Upgrader
from raystream.simulation.processes.database import (
    DatabaseSink,
    SimulatedDatabase,
    check_stored,
)
from raystream.simulation.processes.readers import Readers
from raystream.simulation.processes.sinks import Reference
from raystream.simulation.processes.tier import Tier
from raystream.simulation.references import (
    Totals,
    counted_of,
    planned,
    repeated,
    totals_of_flow,
    upgraded,
)
from raystream.simulation.scenarios import Scenario, asked_for, command, drawn, scenarios_of
from raystream.simulation.upgrades.other_flows import OTHER_VERSIONS
from raystream.simulation.world import World, Wrong
from raystream.state.tables.backend import WHOLE

EVENTS_MAX = 40_000
CONNECTION_EVENTS_MAX = 500
"""This many events after the last fault, and this many more for each pair of instances that are
connected, are more than any job needs to come to its end."""
STAND_BY_SECONDS = 5.0
"""When spare processes are started: early, because a schedule is short."""
SHOWN_MAX = 5
"""How many wrong schedules the command shows."""
AFTERWARDS = 300
"""Events that happen after the end: a process that was stopped may still wake and write."""


Verdict = Literal["right", "lost", "wrong"]
Striker = Mover | NodeCuts | Upgrader | Easer


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a schedule went."""

    seed: int
    """The seed of the schedule."""
    kind: Verdict
    """Whether it was right or wrong, or stopped because checkpoints were lost."""
    why: str
    """What was wrong or lost; "" of a right one."""
    events: int
    """How many events it took."""
    faults: Counter[str]
    """Faults by kind. Moves are counted with them: done, given up or refused; and how often an
    instance has begun with rows on disk that another one had left, or was given a place in a
    process at work."""
    story: list[str] = field(default_factory=list)
    """One line per event, if the story was asked for."""


def simulate(scenario: Scenario, seed: int, *, story: bool = False) -> Outcome:
    """Run one schedule.

    Raises:
        ConfigError: there is no such flow.
    """
    world = World(seed, story=story)
    rng = world.rng
    s = drawn(scenario, rng)
    assert s.instances is not None and s.checkpoint_every is not None and s.copies is not None
    assert s.ahead is not None and s.again is not None and s.fragile is not None
    assert s.recovery is not None and s.into is not None
    undisturbed, reference = planned(s.flow, s.instances)
    plan = replace(undisturbed, state_memory=s.state_memory)
    if s.database:
        plan = _with_a_database(plan)
    changes = _changes(s, plan)
    reference = None if changes else reference
    world.tell(s)
    world.loss, world.doubling, world.slow = s.loss or 0.0, s.doubling or 0.0, s.slow or 0.0
    faults: Faults | None = None
    others: list[Striker] = []
    why, kind, before = "", "right", Counter[str]()
    readers = Readers(world, seed, s.queries, s.flow)
    try:
        job = _job(world, s, replace(plan, checkpoint_every=s.checkpoint_every), reference)
        faults, others = _strikers(job, s, seed, changes)
        readers.begin(job)
        _run(world, job, faults, others)
        while (saved := _left(job)) is not None:
            what = "stopped:" if isinstance(job.error, Stopped) else "all is lost:"
            world.tell(what, job.error, "; goes on from", saved)
            before += _moves(job) + Counter({"resumed after an upgrade": int(saved.version > 0)})
            job = _job(world, s, _with_its_code(job, saved), reference, saved, job)
            for each in (faults, *others):
                each.job = job
            readers.begin(job, None if reference is not None else saved.checkpoint)
            _run(world, job, faults, others)
        counted = totals_of_flow(s.flow) if reference is not None else _judge(job, undisturbed)
        if job.error is None:
            readers.judge(job)
        kind, why = _judged(job, counted)
    except (Exception, Wrong) as error:
        kind, why = "wrong", _said(error)
    world.tell(kind, why)
    done = Counter() if faults is None else faults.done + _moves(faults.job) + readers.counts
    done += before + Counter({"node cut": sum(o.done for o in others if isinstance(o, NodeCuts))})
    return Outcome(
        seed=seed,
        kind=kind,  # type: ignore[arg-type]
        why=why,
        events=world.events,
        faults=done,
        story=world.story or [],
    )


def _strikers(
    job: SimulatedJob, s: Scenario, seed: int, changes: int
) -> tuple[Faults, list[Striker]]:
    """What disturbs a job: faults, and other things that happen to it."""
    rng, size = job.world.rng, len(job.plan.instances())
    upgrader = Upgrader(job, _times(rng, changes, size), s.flow)
    late = rng.randrange(1 + (s.faults or 0))
    faults = Faults(job, _times(rng, (s.faults or 0) - late, size), late, s.kinds)
    cuts = NodeCuts(job, _times(random.Random(seed), s.cuts or 0, size))
    mover = Mover(job, _times(rng, s.moves or 0, size))
    chance, eases = random.Random(f"eases of {seed}"), s.eases if s.together else 0
    easer = Easer(job, _times(chance, eases or 0, size), chance)
    if s.stop and job.tier is not None:
        mover.stop_at = rng.randrange(150 * size)
    return faults, [mover, cuts, upgrader, easer]


def _judge(job: SimulatedJob, plan: Plan) -> Totals:
    """Judge what the sinks were given, where it is known only now. Returns the totals."""
    job.ledger.check_recorded()
    boundaries, versions = job.ledger.published, job.versions
    found = upgraded(plan, boundaries, versions) if versions else repeated(plan, boundaries)
    job.judge(found[0])
    return found[1]


def _changes(s: Scenario, plan: Plan) -> int:
    """How often the code of a job is to be changed."""
    fixed = s.database or s.recovery != "state" or s.queries
    fixed = fixed or plan.check
    return 0 if fixed or s.flow not in OTHER_VERSIONS else s.upgrades or 0


def _with_its_code(job: SimulatedJob, saved: Saved) -> Plan:
    """The plan of a job with the versions of the code that it had, as its submitter knows it."""
    assert job.plan.durable is not None
    version = version_at(job.versions, saved.checkpoint)
    if saved.version != (0 if version is None else version.number):
        raise Wrong(f"{saved} says that version {saved.version} made it, not {version}")
    return replace(job.plan, durable=replace(job.plan.durable, versions=job.versions))


def _with_a_database(plan: Plan) -> Plan:
    """The plan with a sink that is visible by epoch."""
    sink = DatabaseSink(SimulatedDatabase())
    vertices = [replace(v, sink=sink) if v.kind == "sink" else v for v in plan.vertices]
    return replace(plan, vertices=vertices)


def _moves(job: SimulatedJob) -> Counter[str]:
    ended = Counter("move given up" if m.failed else "move" for m in job.entry.moved)
    upgrades = Counter("upgrade given up" if u.failed else "upgrade" for u in job.entry.upgraded)
    seated = sum(seat_of(process)[1] >= SEATS_FROM for process in job.takers)
    counted = {"move refused": job.answers["refused"], "files opened": job.opened}
    counted["seat at work"] = seated
    return ended + upgrades + Counter(counted)


def _job(
    world: World,
    s: Scenario,
    plan: Plan,
    reference: Reference | None,
    saved: Saved | None = None,
    before: SimulatedJob | None = None,
) -> SimulatedJob:
    """A job at its beginning, or one that goes on from a saved checkpoint of another."""
    assert s.copies is not None and s.into is not None and s.recovery is not None
    assert s.ahead is not None and s.again is not None and s.fragile is not None
    assert s.image_bytes is not None and s.budget is not None
    tier = None
    if s.durable and s.recovery == "state":
        tier = Tier(plan.job) if before is None else before.tier
        assert tier is not None
        plan = durably(plan, tier.saves, "sim" if saved is None else f"{saved.run}+", saved)
    database = before.database if before is not None else None
    if before is None and s.database:
        database = SimulatedDatabase()
    job = SimulatedJob(
        world,
        plan,
        reference,
        options=ProtocolOptions(
            copies=s.copies,
            spares=world.rng.randrange(3),
            recovery=s.recovery,
            restore_into=s.into,
            together=bool(s.together),
            stand_by=STAND_BY_SECONDS,
            switch_seconds=world.rng.choice((0.0, 0.1, 0.3)) if _changes(s, plan) else 0.0,
        ),
        nodes=s.nodes,
        operator_nodes=s.operator_nodes or 0,
        zones=s.zones or 0,
        ahead=s.ahead,
        again=s.again,
        fragile=s.fragile,
        part_bytes=s.part_bytes if s.part_bytes and tier is None else WHOLE,
        image_bytes=s.image_bytes,
        budget=s.budget,
        tier=tier,
        database=database,
    )
    if _changes(s, plan):
        job.defers = True  # what its sinks are to be given is known only at the end
    if before is not None and saved is not None:
        before.all_dead()
        job.goes_on(before, saved.checkpoint)
    return job


def _left(job: SimulatedJob) -> Saved | None:
    """The saved checkpoint from which to go on, if a job lost something and there is one."""
    if job.tier is None or not isinstance(job.error, LostError | Stopped):
        return None
    return job.tier.newest()


def _times(rng: random.Random, faults: int, instances: int) -> list[int]:
    """After how many events faults strike: anywhere, and often soon after each other."""
    times: list[int] = []
    for _ in range(faults):
        near = times and rng.random() < 0.5
        times.append(times[-1] + rng.randrange(60) if near else rng.randrange(150 * instances))
    return sorted(times)


def _run(
    world: World,
    job: SimulatedJob,
    faults: Faults,
    others: Sequence[Striker],
) -> None:
    quiet, most = 0, _most_events(job)
    while not job.over:
        faults.strike()
        for each in others:
            each.strike()
        cuts = next(each.at for each in others if isinstance(each, NodeCuts))
        if faults.at or cuts:
            quiet = 0
        elif not quiet:
            world.tell("no more faults")
            world.loss = world.slow = world.doubling = job.fragile = 0.0
            for disk in job.disks.values():
                disk.full = False
            quiet = world.events
        if world.events % 1000 == 0:
            most = max(most, _most_events(job))
        if not world.step() or world.events > quiet + most + 1000 * len(faults.at + cuts):
            at = {
                i.name: (p.machine.position, p.tenure.storing.chain.stored)
                for i, p in job.members()
            }
            raise Wrong(f"it does not come to its end: committed {job.entry.committed}, {at}")
    for _ in range(AFTERWARDS):
        world.step()


def _most_events(job: SimulatedJob) -> int:
    """After this many events without a fault a job of this size hangs, or runs in circles."""
    instances = Counter(record.place.vertex for record in job.entry.instances)
    connections = sum(instances[e.producer] * instances[e.consumer] for e in job.plan.edges)
    most = EVENTS_MAX + CONNECTION_EVENTS_MAX * connections
    return most if job.budget == WHOLE else 2 * most  # each file that is written is an event


def _judged(job: SimulatedJob, counted: Totals) -> tuple[Verdict, str]:
    if isinstance(job.error, JobError) and "is lost" in job.error.message:
        return "lost", job.error.message
    if job.error is not None:
        return "wrong", str(job.error)
    if job.database is not None:
        check_stored(job.database, job.reference)
        return "right", ""
    parts = {(v, *part) for v, expected in job.reference.items() for part in expected}
    if parts != job.written.parts:
        return "wrong", f"never written: {sorted(parts - job.written.parts)}"
    sinks = {(v, keys) for v in job.reference for keys in job.plan.ranges[v]}
    if sinks != job.written.closed:
        return "wrong", f"never closed: {sorted(sinks - job.written.closed)}"
    if counted != (found := counted_of(job.controller.machine.progress())):
        return "wrong", f"it counted {found}, not {counted}"
    return "right", ""


def _said(error: BaseException) -> str:
    if isinstance(error, Wrong):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


def run_many(
    scenarios: Sequence[Scenario], schedules: int, seed: int
) -> tuple[Counter[str], Counter[str], list[tuple[Scenario, Outcome]]]:
    """Run schedules of all scenarios in turn: outcomes by kind, faults by kind, what was wrong."""
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    wrong = []
    for i in range(schedules):
        scenario = scenarios[i % len(scenarios)]
        outcome = simulate(scenario, seed + i)
        kinds[outcome.kind] += 1
        faults += outcome.faults
        if outcome.kind == "wrong":
            wrong.append((scenario, outcome))
    return kinds, faults, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when something was wrong, 2 for a bad option."""
    parser = argparse.ArgumentParser(prog="python -m raystream.simulation")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule")
    parser.add_argument("--flow", help=f"{', '.join(FLOWS)}, or module:function; all unless given")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="of a scenario (see Scenario), as in copies=2 or kinds=[\"kill\"]; drawn unless given",
    )  # fmt: skip
    parser.add_argument("--scenarios", type=Path, help="a TOML file with [[scenario]] tables")
    parser.add_argument("--story", action="store_true", help="tell one schedule, event by event")
    given = parser.parse_args(arguments)
    try:
        if given.scenarios is None:
            scenarios = asked_for(given.set, [given.flow] if given.flow else FLOWS)
        else:
            scenarios = _written(given.scenarios)
        if given.story:
            outcome = simulate(scenarios[0], given.seed, story=True)
            _say(*outcome.story)
            return 1 if outcome.kind == "wrong" else 0
        kinds, faults, wrong = run_many(scenarios, given.schedules, given.seed)
    except RaystreamError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _say(
        f"schedules {given.schedules}: {', '.join(dict.fromkeys(s.flow for s in scenarios))}",
        "faults    " + ", ".join(f"{n} {kind}" for kind, n in sorted(faults.items())),
        f"wrong     {kinds['wrong']}",
        f"stopped   {kinds['lost']} with lost checkpoints",
        *(f"\n{o.why}\n  {command(s, o.seed)}" for s, o in wrong[:SHOWN_MAX]),
    )
    return 1 if wrong else 0


def _written(path: Path) -> list[Scenario]:
    try:
        return scenarios_of(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
