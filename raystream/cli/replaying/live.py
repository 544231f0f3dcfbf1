"""`fork --live`: the versions take what the running job's sources emit. Only those in which
functions run are read again, if they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import typer

from raystream.cli.replaying.versions import SHOWS_MORE, interrupts, load, outcome, say
from raystream.errors import ConfigError, JobError, RaystreamError, StateError

if TYPE_CHECKING:
    from raystream.actors.client.forking import LiveEdges, RunningJob
    from raystream.api.flow import Flow
    from raystream.local.comparing import Compared, Pair
    from raystream.local.forking import Fork
    from raystream.local.rereading import ReadAgain

WAIT_SECONDS = 0.5
"""How long to wait for the next epoch before Ctrl-C, and whether the job has ended, are looked
at."""
LAST_SECONDS = 2.0
"""How long what a job had sent may still come when it has ended."""


class LiveFork(NamedTuple):
    """What is asked for."""

    job: str
    """`module:name` of the flow of the job, or the name of the job."""
    code: str
    """`module:name` of the second version."""
    code_folder: str
    """Where its module is; empty for the current folder."""
    name: str
    """The name of the fork."""
    address: str
    """That of the cluster."""
    to: int | None
    """The last epoch; None for the end of the input."""
    most: int
    """How many differences are printed."""
    out: str
    """The folder into which the output of the second version is written; empty for nowhere."""
    ask: bool
    """Whether the second version asks the world by itself."""


def fork_live(wanted: LiveFork) -> bool:
    """Fork a running job, and print how the versions differ. Returns whether they do.

    Raises:
        ConfigError: there is no such job. StateError: a flow has other streams than the job.
        JobError: the job has trimmed what comes next, or went over to other code.
        RaystreamError: the second version has failed.
    """
    from raystream.actors.client.forking import running_job
    from raystream.local.forking import Fork, fork_plan
    from raystream.local.rereading import ReadAgain

    flow = load(wanted.job) if ":" in wanted.job else None
    with running_job(wanted.job if flow is None else flow.name, wanted.address) as running:
        code = running.code
        flow = load(_place_of(running)) if flow is None else flow
        # After the first: a module of the same name that was imported before would be taken.
        other = load(wanted.code, wanted.code_folder)
        for each in (flow, other):
            _refuse_others(running, each)
        other.name = wanted.name
        plan = fork_plan(flow, code.clock, code.checkpoint_every)
        second = fork_plan(other, code.clock, code.checkpoint_every)
        edges, images = running.begin(f"fork/{wanted.name}", plan)
        try:
            say(f"from checkpoint {edges.checkpoint} of {running.run}, on what its sources emit")
            again = ReadAgain(plan, images)
            again.hand_splits(second)
            read, out = again.vertices, wanted.out or None
            one = Fork(plan, images, code.number, again=read)
            two = Fork(second, images, code.number, write_to=out, ask=wanted.ask, again=read)
            del images
            for note in _notes(running, one, again, ask=wanted.ask):
                say(note)
            edges.begin(one.ended_at_first)
            return _compared(wanted, running, edges, one, two, again)
        finally:
            edges.stop()


def _place_of(running: RunningJob) -> str:
    if not running.code.name:
        raise ConfigError(
            f"{running.run} does not say where its flow is",
            hint="It was not run by `raystream run`. Name the flow: MODULE:FLOW.",
        )
    return running.code.name


def _refuse_others(running: RunningJob, flow: Flow) -> None:
    """Refuse a flow with other streams than the job, or with rows that it cannot take."""
    from raystream.controller.planning.upgrading import outline_of_flow, refuse_upgrade

    try:
        refuse_upgrade(running.code.outline, *outline_of_flow(flow))
    except StateError as error:
        raise StateError(
            f"{flow.code or flow.name} cannot be fed by {running.run}: {error.message}",
            where=error.where,
            hint=f"{error.hint}\n  Without --live a fork reads the sources by itself, and the flow"
            " may have changed more.",
        ) from None


def _notes(running: RunningJob, one: Fork, again: ReadAgain, *, ask: bool) -> list[str]:
    """What of the flow is not run here, in words; and what is read besides what the job emits."""
    found = []
    if running.code.number:
        found.append(
            "the job was upgraded. The first version is the flow of this folder: it should be the"
            " code that the job runs now"
        )
    for vertex in one.plan.vertices:
        fused = ", ".join(f.name for f in vertex.fused)
        if vertex.id in again.vertices:
            found.append(f"{vertex.name} is read again, so that {fused} can be compared, too")
        elif vertex.kind == "source" and fused:
            found.append(
                f"{vertex.name} is the job's, with {fused}: that code is not compared, because"
                f" {again.why_not(vertex)}"
            )
        if vertex.spec is not None and vertex.spec.asking is not None and not ask:
            more = f", with {fused}" if fused else ""
            found.append(
                f"what {vertex.name} was answered is the job's{more}: its code is not compared"
            )
    return found


def _compared(
    wanted: LiveFork,
    running: RunningJob,
    edges: LiveEdges,
    one: Fork,
    two: Fork,
    again: ReadAgain,
) -> bool:
    """Compare the versions until there is no more to compare. Returns whether they differ."""
    from raystream.local.comparing import Pair

    one.beside, two.beside = two, one
    telling, first = _Telling(wanted), edges.checkpoint + 1
    with one, two, interrupts() as left:
        pair = Pair(one, two)
        try:
            while not (left or one.ended or pair.failed or one.at >= telling.to):
                given = edges.next(WAIT_SECONDS)
                if not given and (edges.finished or running.over()):
                    given = edges.next(LAST_SECONDS)  # it was under way
                    if not given:
                        break
                read = again.read(given)
                one.give(given, read)
                if name := one.made_otherwise():
                    raise _not_that_of_the_job(name, one.at + 1)
                two.give(given, read)
                telling.tell(pair.turn(telling.to))
                if not (pair.failed or wanted.ask):
                    _refuse_other_questions(one, two)
        except JobError:
            if one.at >= first:
                say(outcome(pair, first, telling.found))
            raise
        except RaystreamError:  # an error of the first version is in `pair.failed`
            say(f"the second version ends in epoch {two.at + 1}:")
            raise
        say(_end(pair, first, telling.found))
    return telling.found > 0


def _not_that_of_the_job(source: str, epoch: int) -> JobError:
    return JobError(
        f"{source} of the first version makes other records than the job from epoch {epoch} on",
        hint="The current folder has to hold the code that the job runs, and what the source reads"
        " has to be as it was.",
    )


def _refuse_other_questions(one: Fork, two: Fork) -> None:
    """End where an operator would ask otherwise: what it would be answered is not known.

    Raises:
        JobError: it would.
    """
    from raystream.local.forking import asked_otherwise

    if (asked := asked_otherwise(one.asked(), two.asked())) is not None:
        shown = f", with {asked.records[0]!r:.200}" if asked.records else ""
        raise JobError(
            f"{asked.operator} of the second version asks otherwise in epoch {asked.epoch}{shown}:"
            " what it would be answered is not known",
            hint="The epochs before are compared. With --ask it asks by itself.",
        )


def _end(pair: Pair, first: int, found: int) -> str:
    if pair.first.at < first:
        return f"nothing came after epoch {pair.first.at}"
    return outcome(pair, first, found)


class _Telling:
    """Prints differences."""

    def __init__(self, wanted: LiveFork) -> None:
        self.to = wanted.to or 1 << 62
        self._most = wanted.most
        self.found = 0

    def tell(self, compared: Compared | None) -> None:
        for difference in () if compared is None else compared.differences:
            if difference.epoch > self.to:
                continue
            self.found += 1
            if self.found <= self._most:
                typer.echo("\n".join(difference.lines()))
            elif self.found == self._most + 1:
                typer.echo(SHOWS_MORE)
