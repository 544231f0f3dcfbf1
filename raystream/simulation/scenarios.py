"""What a schedule is made of, as data."""

from __future__ import annotations

import json
import random
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from raystream.controller.protocol.strategies import RecoveryMode
from raystream.errors import ConfigError
from raystream.simulation.faults import KINDS
from raystream.state.images.chain import IMAGE_BYTES
from raystream.state.tables.backend import WHOLE


@dataclass(frozen=True)
class Scenario:
    """What a schedule is made of. What is None is drawn by the schedule's seed."""

    flow: str = "words"
    """A name of `flows.FLOWS`, or `module:function`: a function of a `Collect` that returns a
    flow."""
    _: KW_ONLY
    instances: tuple[int, ...] | None = None
    """The number of instances of each vertex in turn, repeated if there are more vertices."""
    checkpoint_every: int | None = None
    """Epochs between checkpoints."""
    nodes: int = 3
    """How many nodes the cluster has."""
    copies: int | None = None
    """How many keepers hold each checkpoint."""
    recovery: RecoveryMode | None = None
    """What a recovery starts from."""
    into: int | None = None
    """How many instances share the range of one that died."""
    faults: int | None = None
    """How many faults there are."""
    kinds: tuple[str, ...] = ()
    """Kinds of faults, see `faults.KINDS`; drawn if none is given."""
    cuts: int | None = None
    """How often a node is cut off from all others for a while."""
    loss: float | None = None
    """The share of control messages that are lost."""
    doubling: float | None = None
    """The share of control messages that come twice."""
    slow: float | None = None
    """The share of messages that take long."""
    fragile: float | None = None
    """The share of restores at which the new process dies."""
    again: float | None = None
    """The share of connections that ask for what came before."""
    ahead: int | None = None
    """Epochs that a producer may be ahead."""
    durable: bool | None = None
    """Whether committed checkpoints are saved, so that a job which lost something goes on from
    there."""
    moves: int | None = None
    """How often ranges are asked to be moved."""
    operator_nodes: int | None = None
    """How many of the nodes are meant for operators."""
    zones: int | None = None
    """How many zones the nodes are labelled with, in turn; 0 for no labels."""
    part_bytes: int | None = None
    """Bytes of the parts in which images are shipped, where no checkpoints are saved."""
    database: bool = False
    """Whether the sink is visible by epoch: it writes to a simulated database, and its processes
    also die between the calls to that."""
    stop: bool = False
    """Whether the job is stopped with a saved checkpoint once, if it has a durable tier, and goes
    on from there."""
    budget: int | None = None
    """Bytes of memory that a keeper has for checkpoints. With few, most of them are in files."""
    queries: int = 0
    """How many clients query the state of operators all the time."""
    upgrades: int | None = None
    """How often the job is asked to go over to the other version of its code, and back. Not of
    flows that have none, and not where checkpoints are saved."""
    together: bool | None = None
    """Whether instances of different vertices share a process, and die with it."""
    eases: int | None = None
    """How often an instance is asked to leave the thread that it shares, or to come back."""
    image_bytes: int | None = None
    """What one more image costs a restore, in bytes. With a low cost, rows are refreshed soon."""
    state_memory: int | None = None
    """Bytes that the rows of an instance may take in memory, the others are on disk; None for all
    rows in memory. What an undisturbed run gives is taken with all rows in memory."""


def drawn(s: Scenario, rng: random.Random) -> Scenario:
    """A scenario with everything decided: not all kinds of faults in all schedules, since some
    states are only reached by many of few kinds (Groce et al., Swarm Testing, ISSTA 2012)."""

    def maybe(given: float | None, most: float) -> float:
        value = rng.random() * most if rng.random() < 0.6 else 0.0
        return value if given is None else given

    instances = tuple(rng.choice((1, 2, 2, 3)) for _ in range(4))
    checkpoint_every, copies = rng.choice((1, 2, 2, 3, 3, 5)), rng.choice((1, 2))
    faults, meant = rng.choice((*range(1, 8), 12)), rng.choice((0, 0, 1, 2))
    apart = random.Random(repr(rng.getstate()[1][:2]))  # seeds that are known stay what they were
    upgrades, together = apart.choice((0, 0, 1, 1, 2)), apart.random() < 0.25
    cuts = 0 if s.faults == 0 else apart.choice((0, 0, 0, 0, 1))
    eases = apart.choice((0, 8, 30))
    few = rng.sample([*KINDS], rng.randrange(1, 4)) if rng.random() < 0.5 else ()
    return replace(
        s,
        instances=s.instances or instances,
        checkpoint_every=s.checkpoint_every or checkpoint_every,
        copies=s.copies or copies,
        recovery=s.recovery or rng.choice(("state",) * 8 + ("upstream", "source")),
        into=s.into or rng.choice((1, 1, 1, 2, 3)),
        faults=faults if s.faults is None else s.faults,
        kinds=s.kinds or tuple(few),
        cuts=cuts if s.cuts is None else s.cuts,
        loss=maybe(s.loss, 0.05),
        doubling=maybe(s.doubling, 0.3),
        slow=maybe(s.slow, 0.05),
        fragile=maybe(s.fragile, 0.5),
        again=maybe(s.again, 1.0),
        ahead=s.ahead or rng.randrange(2, 9),
        durable=rng.random() < 0.5 if s.durable is None else s.durable,
        moves=rng.choice((0, 0, 1, 2, 3, 5)) if s.moves is None else s.moves,
        operator_nodes=meant if s.operator_nodes is None else s.operator_nodes,
        zones=rng.choice((0, 0, 2, 3)) if s.zones is None else s.zones,
        part_bytes=s.part_bytes or rng.choice((WHOLE, WHOLE, 500, 100)),
        together=together if s.together is None else s.together,
        eases=eases if s.eases is None else s.eases,
        upgrades=upgrades if s.upgrades is None else s.upgrades,
        image_bytes=rng.choice((IMAGE_BYTES, 0, 0)) if s.image_bytes is None else s.image_bytes,
        budget=s.budget or rng.choice((WHOLE, WHOLE, 2000, 500, 1)),
    )


def command(scenario: Scenario, seed: int) -> str:
    """The command that runs a schedule again and tells its story."""
    given = {f.name: getattr(scenario, f.name) for f in fields(scenario) if f.name != "flow"}
    changed = {n: v for n, v in given.items() if v != getattr(Scenario, n)}
    said = [f"{n}={json.dumps(v)}" for n, v in changed.items()]
    return " ".join(
        [
            f"python -m raystream.simulation --seed {seed} --flow {scenario.flow}",
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


def asked_for(settings: Iterable[str], flows: Iterable[str]) -> list[Scenario]:
    """A scenario for each of the flows, with what is set as in `copies=2`.

    Raises:
        ConfigError: a scenario has no such thing.
    """
    table = "\n".join(settings)
    (scenario,) = scenarios_of(f"[[scenario]]\n{table}")
    return [replace(scenario, flow=name) for name in flows]
