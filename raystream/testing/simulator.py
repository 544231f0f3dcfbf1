"""The simulator: a seeded second shell over the machines that run jobs, with faults at any step.

    python -m raystream.testing.simulator --schedules 1000 --seed 1 --flow words
    python -m raystream.testing.simulator --scenarios tests/testing/scenarios.toml

A schedule runs a small flow once, in simulated processes that die, stop for a while and wake, lose
connections and control messages, in an order that its seed decides. Every part of its output must
be what an undisturbed run gives, bit for bit; the job must come to its end once faults stop, or say
which checkpoints are lost. There are no threads, clocks or Ray in it. Not simulated: what does not
fit into memory.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from raystream.api.flow import Flow
from raystream.controller.members import Options
from raystream.controller.planning import make_plan
from raystream.controller.recovery import Mode
from raystream.controller.report import Progress, totals
from raystream.controller.resuming import durably
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError, JobError, LostError, RaystreamError
from raystream.schema.types import KeyRange
from raystream.state.chain import IMAGE_BYTES
from raystream.state.checkpoint import WHOLE
from raystream.state.keys import even_ranges
from raystream.state.saved import Saved
from raystream.testing.collect import Collect
from raystream.testing.local import Ends, LocalJob
from raystream.testing.same import difference
from raystream.testing.simfaults import KINDS, Faults
from raystream.testing.simflows import FLOWS
from raystream.testing.simjob import Job
from raystream.testing.simmoves import Mover
from raystream.testing.simsinks import Reference
from raystream.testing.simtier import Tier
from raystream.testing.simworld import World, Wrong

EVENTS_MAX = 40_000
CONNECTION_EVENTS_MAX = 500
"""So many events after the last fault, and so many more for each pair of instances that one sends
to the other, are more than any job needs to come to its end."""
STAND_BY_SECONDS = 5.0
"""From then on there are spare processes: a schedule is short."""
SHOWN_MAX = 5
"""Wrong schedules that the command shows."""
AFTERWARDS = 300
"""Events that are let happen after the end: what was stopped may still wake and write."""


@dataclass(frozen=True)
class Scenario:
    """What a schedule is made of. What is None is drawn by the schedule's seed.

    flow: a name of `simflows.FLOWS`, or `module:function` (a function of a `Collect` that returns a
    flow). instances: of every operator. cut_every: epochs between cuts. copies: of checkpoints.
    recovery, into: what a recovery starts from, and how many share the range of who died.
    faults: how many; kinds: of which (see `simfaults.KINDS`), drawn if none is given.
    loss, doubling: shares of control messages. slow: share of slow messages.
    fragile: share of restores at which a substitute dies. again: share of connections that ask
    for what came before. ahead: epochs that a producer may be ahead. durable: whether committed
    cuts are saved, so that a job which lost something goes on from there. moves: how often it is
    asked for ranges to be moved. part_bytes: of the parts in which images are shipped, where no
    cuts are saved. image_bytes: what another image costs a restore: with few, rows are refreshed
    soon. operator_nodes: how many of the nodes are meant for operators.
    """

    flow: str = "words"
    instances: tuple[int, ...] | None = None
    cut_every: int | None = None
    nodes: int = 3
    copies: int | None = None
    recovery: Mode | None = None
    into: int | None = None
    faults: int | None = None
    kinds: tuple[str, ...] = ()
    loss: float | None = None
    doubling: float | None = None
    slow: float | None = None
    fragile: float | None = None
    again: float | None = None
    ahead: int | None = None
    durable: bool | None = None
    moves: int | None = None
    operator_nodes: int | None = None
    part_bytes: int | None = None
    image_bytes: int | None = None


Kind = Literal["right", "lost", "wrong"]


@dataclass(frozen=True)
class Outcome:
    """How a schedule went. kind: right, wrong, or stopped because checkpoints were lost. faults: by
    kind; moves are counted with them: done, given up or refused."""

    seed: int
    kind: Kind
    why: str
    events: int
    faults: Counter[str]
    story: list[str] = field(default_factory=list)


@cache
def planned(flow: str, instances: tuple[int, ...]) -> tuple[Plan, Reference | None]:
    """The plan of a flow, and what its sinks are to be given; the same bits as with one instance.
    None for a flow that is cut by arrival: that depends on the cuts.

    Args:
        instances: of each vertex in turn, over again.
    """
    plan = _plan(flow)
    counts = {v.id: instances[i % len(instances)] for i, v in enumerate(plan.vertices)}
    plan = replace(plan, ranges={v: even_ranges(plan.groups, n) for v, n in counts.items()})
    (sink,) = (v.id for v in plan.vertices if v.kind == "sink")
    return plan, None if plan.clock is None else _reference(flow, counts[sink])


@cache
def _plan(flow: str) -> Plan:
    """The plan of a flow with one instance of everything, made once."""
    plan = make_plan(_flow(flow)(Collect()))
    if sum(v.kind == "sink" for v in plan.vertices) != 1:
        raise ConfigError(f"flow {flow!r} must have one sink to be simulated")
    return plan


Totals = dict[str, tuple[int, int, int, dict[str, int]]]
"""By operator the records that came in, went out and were late, and those of each port."""


@cache
def _totals(flow: str) -> Totals:
    """Of an undisturbed run; they do not depend on how many instances there are."""
    return _run_alone(_plan(flow))[1]


def _totals_of(progress: Iterable[Progress]) -> Totals:
    return {o.name: (o.records_in, o.records_out, o.late, o.by_port) for o in totals(progress)}


@cache
def _reference(flow: str, sinks: int) -> Reference:
    """What so many instances of the sink are given in an undisturbed run: the bits do not depend on
    how many of all others there are."""
    whole, _ = _run_alone(_plan(flow))
    sink, *_ = (v for v in _plan(flow).vertices if v.kind == "sink")
    ranges = {**_plan(flow).ranges, sink.id: even_ranges(_plan(flow).groups, sinks)}
    parts, _ = _run_alone(replace(_plan(flow), ranges=ranges))
    if wrong := difference(parts.by_epoch(), whole.by_epoch()):
        raise Wrong(f"{flow} with {sinks} instances of its sink: {wrong}")
    return _given(_plan(flow), parts)


def _run_alone(plan: Plan, boundaries: Ends | None = None) -> tuple[Collect, Totals]:
    """What the sink of a plan is given in an undisturbed run, and what that counts."""
    sink = Collect()
    vertices = [replace(v, sink=sink) if v.kind == "sink" else v for v in plan.vertices]
    job = LocalJob(replace(plan, vertices=vertices), boundaries=boundaries)
    job.run()
    return sink, _totals_of(job.progress())


def _given(plan: Plan, sink: Collect) -> Reference:
    expected = {part: list(batch.records()) for part, batch in sink.parts.items()}
    sinks = [v.id for v in plan.vertices if v.kind == "sink"]
    return dict.fromkeys(sinks, expected)


def _again(plan: Plan, boundaries: Ends) -> tuple[Reference, Totals]:
    """What the sinks of a flow are to be given whose epochs were cut there, and what it counts."""
    one = {v.id: plan.ranges[v.id] if v.kind == "sink" else [KeyRange(0, plan.groups)]
           for v in plan.vertices}  # fmt: skip
    sink, counted = _run_alone(replace(plan, ranges=one), dict(boundaries))
    return _given(plan, sink), counted


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


def simulate(scenario: Scenario, seed: int, *, story: bool = False) -> Outcome:
    """Run one schedule.

    Raises:
        ConfigError: there is no such flow.
    """
    world = World(seed, story=story)
    rng = world.rng
    s = _drawn(scenario, rng)
    assert s.instances is not None and s.cut_every is not None and s.copies is not None
    assert s.ahead is not None and s.again is not None and s.fragile is not None
    assert s.recovery is not None and s.into is not None
    plan, reference = planned(s.flow, s.instances)
    world.tell(s)
    world.loss, world.doubling, world.slow = s.loss or 0.0, s.doubling or 0.0, s.slow or 0.0
    faults: Faults | None = None
    why, kind = "", "right"
    try:
        job = _job(world, s, replace(plan, cut_every=s.cut_every), reference)
        late = rng.randrange(1 + (s.faults or 0))
        faults = Faults(
            job, _times(rng, (s.faults or 0) - late, len(plan.instances())), late, s.kinds
        )
        mover = Mover(job, _times(rng, s.moves or 0, len(plan.instances())))
        _run(world, job, faults, mover)
        while (saved := _left(job)) is not None:
            world.tell("all is lost:", job.error, "; goes on from", saved)
            job = faults.job = mover.job = _job(world, s, job.plan, reference, saved, job)
            _run(world, job, faults, mover)
        if reference is None:
            reference, counted = _again(plan, job.ledger.published)
            job.judge(reference)
        else:
            counted = _totals(s.flow)
        kind, why = _judged(job, counted)
    except (Exception, Wrong) as error:
        kind, why = "wrong", _said(error)
    world.tell(kind, why)
    done = Counter() if faults is None else faults.done + _moves(faults.job)
    return Outcome(seed, kind, why, world.events, done, world.story or [])  # type: ignore[arg-type]


def _moves(job: Job) -> Counter[str]:
    ended = Counter("move given up" if m.failed else "move" for m in job.entry.moved)
    return ended + Counter({"move refused": job.answers["refused"]})


def _job(
    world: World,
    s: Scenario,
    plan: Plan,
    reference: Reference | None,
    saved: Saved | None = None,
    before: Job | None = None,
) -> Job:
    """A job at its beginning, or one that goes on from a saved cut of another."""
    assert s.copies is not None and s.into is not None and s.recovery is not None
    assert s.ahead is not None and s.again is not None and s.fragile is not None
    assert s.image_bytes is not None
    tier = None
    if s.durable and s.recovery == "state":
        tier = Tier(plan.job) if before is None else before.tier
        assert tier is not None
        plan = durably(plan, tier.saves, "sim" if saved is None else f"{saved.run}+", saved)
    job = Job(
        world,
        plan,
        reference,
        options=Options(
            s.copies, world.rng.randrange(3), s.recovery, s.into, stand_by=STAND_BY_SECONDS
        ),
        nodes=s.nodes,
        operator_nodes=s.operator_nodes or 0,
        ahead=s.ahead,
        again=s.again,
        fragile=s.fragile,
        part_bytes=s.part_bytes if s.part_bytes and tier is None else WHOLE,
        image_bytes=s.image_bytes,
        tier=tier,
    )
    if before is not None and saved is not None:
        before.all_dead()
        job.goes_on(before, saved.cut)
    return job


def _left(job: Job) -> Saved | None:
    """The cut from which to go on, if a job lost something and there is one."""
    if job.tier is None or not isinstance(job.error, LostError):
        return None
    return job.tier.newest()


def _drawn(s: Scenario, rng: random.Random) -> Scenario:
    """A scenario with everything decided: not all kinds of faults in all schedules, since some
    states are only reached by many of few kinds (Groce et al., Swarm Testing, ISSTA 2012)."""

    def maybe(given: float | None, most: float) -> float:
        drawn = rng.random() * most if rng.random() < 0.6 else 0.0
        return drawn if given is None else given

    instances = tuple(rng.choice((1, 2, 2, 3)) for _ in range(4))
    cut_every, copies = rng.choice((1, 2, 2, 3, 3, 5)), rng.choice((1, 2))
    faults, meant = rng.choice((*range(1, 8), 12)), rng.choice((0, 0, 1, 2))
    few = rng.sample([*KINDS], rng.randrange(1, 4)) if rng.random() < 0.5 else ()
    return replace(
        s,
        instances=s.instances or instances,
        cut_every=s.cut_every or cut_every,
        copies=s.copies or copies,
        recovery=s.recovery or rng.choice(("state",) * 8 + ("upstream", "source")),
        into=s.into or rng.choice((1, 1, 1, 2, 3)),
        faults=faults if s.faults is None else s.faults,
        kinds=s.kinds or tuple(few),
        loss=maybe(s.loss, 0.05),
        doubling=maybe(s.doubling, 0.3),
        slow=maybe(s.slow, 0.05),
        fragile=maybe(s.fragile, 0.5),
        again=maybe(s.again, 1.0),
        ahead=s.ahead or rng.randrange(2, 9),
        durable=rng.random() < 0.5 if s.durable is None else s.durable,
        moves=rng.choice((0, 0, 1, 2, 3, 5)) if s.moves is None else s.moves,
        operator_nodes=meant if s.operator_nodes is None else s.operator_nodes,
        part_bytes=s.part_bytes or rng.choice((WHOLE, WHOLE, 500, 100)),
        image_bytes=rng.choice((IMAGE_BYTES, 0, 0)) if s.image_bytes is None else s.image_bytes,
    )


def _times(rng: random.Random, faults: int, instances: int) -> list[int]:
    """After how many events faults strike: anywhere, and often soon after each other."""
    times: list[int] = []
    for _ in range(faults):
        near = times and rng.random() < 0.5
        times.append(times[-1] + rng.randrange(60) if near else rng.randrange(150 * instances))
    return sorted(times)


def _run(world: World, job: Job, faults: Faults, mover: Mover) -> None:
    quiet, most = 0, _most_events(job)
    while not job.over:
        faults.strike()
        mover.strike()
        if faults.at:
            quiet = 0
        elif not quiet:
            world.tell("no more faults")
            world.loss = world.slow = world.doubling = job.fragile = 0.0
            quiet = world.events
        if world.events % 1000 == 0:
            most = max(most, _most_events(job))
        if not world.step() or world.events > quiet + most + 1000 * len(faults.at):
            at = {i.name: (p.machine.position, p.chain.stored) for i, p in job.members()}
            raise Wrong(f"it does not come to its end: committed {job.entry.committed}, {at}")
    for _ in range(AFTERWARDS):
        world.step()


def _most_events(job: Job) -> int:
    """After so many without a fault a job of this size hangs, or runs in circles."""
    instances = Counter(seat.place.vertex for seat in job.entry.seats)
    connections = sum(instances[e.producer] * instances[e.consumer] for e in job.plan.edges)
    return EVENTS_MAX + CONNECTION_EVENTS_MAX * connections


def _judged(job: Job, counted: Totals) -> tuple[Kind, str]:
    if isinstance(job.error, JobError) and "is lost" in job.error.message:
        return "lost", job.error.message
    if job.error is not None:
        return "wrong", str(job.error)
    parts = {(v, *part) for v, expected in job.reference.items() for part in expected}
    if parts != job.written.parts:
        return "wrong", f"never written: {sorted(parts - job.written.parts)}"
    sinks = {(v, keys) for v in job.reference for keys in job.plan.ranges[v]}
    if sinks != job.written.closed:
        return "wrong", f"never closed: {sorted(sinks - job.written.closed)}"
    if counted != (found := _totals_of(job.controller.machine.progress())):
        return "wrong", f"it counted {found}, not {counted}"
    return "right", ""


def _said(error: BaseException) -> str:
    if isinstance(error, Wrong):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


def command(scenario: Scenario, seed: int) -> str:
    """What runs a schedule again and tells its story."""
    given = {f.name: getattr(scenario, f.name) for f in fields(scenario) if f.name != "flow"}
    changed = {n: v for n, v in given.items() if v != getattr(Scenario, n)}
    said = [f"{n}={json.dumps(v)}" for n, v in changed.items()]
    return " ".join(
        [
            f"python -m raystream.testing.simulator --seed {seed} --flow {scenario.flow}",
            *(f"--set {shlex.quote(s)}" for s in said),
            "--story",
        ]
    )


def scenarios_of(text: str) -> list[Scenario]:
    """Scenarios as data: TOML, a table `[[scenario]]` each, whose keys are fields of `Scenario`.

    Raises:
        ConfigError: it is no TOML, or says something that no scenario has.
    """
    try:
        tables = tomllib.loads(text).get("scenario", [])
        return [_scenario(table) for table in tables]
    except (tomllib.TOMLDecodeError, AttributeError, TypeError) as error:
        raise ConfigError(f"these are no scenarios: {error}") from None


def _scenario(table: dict[str, Any]) -> Scenario:
    known = [f.name for f in fields(Scenario)]
    for name in table:
        if name not in known:
            raise ConfigError(f"a scenario has no {name!r}", hint=f"There are {', '.join(known)}.")
    for kind in table.get("kinds", ()):
        if kind not in KINDS:
            raise ConfigError(f"no fault is a {kind!r}", hint=f"There are {', '.join(KINDS)}.")
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in table.items()}
    return Scenario(**values)


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
    parser = argparse.ArgumentParser(prog="python -m raystream.testing.simulator")
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


def asked_for(settings: Iterable[str], flows: Iterable[str]) -> list[Scenario]:
    """A scenario for each of the flows, with what is set as in `copies=2`.

    Raises:
        ConfigError: a scenario has no such thing.
    """
    table = "\n".join(settings)
    (scenario,) = scenarios_of(f"[[scenario]]\n{table}")
    return [replace(scenario, flow=name) for name in flows]


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
