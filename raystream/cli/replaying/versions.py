"""What `replay` and `fork` do: find the flow and the checkpoint, step one version or two, and print
the calls, the differences and the totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from raystream.errors import ConfigError, RaystreamError

if TYPE_CHECKING:
    from raystream.api.flow import Flow
    from raystream.controller.planning.changes import ResumeWishes
    from raystream.dataflow.plan import Plan
    from raystream.durable.manifest import Saved
    from raystream.durable.saves import Saves
    from raystream.local.comparing import Pair
    from raystream.local.probe import Visit
    from raystream.local.replay import Replay

SHOWS_MORE = "more differ: --differences N shows them"
TRIES = 5
"""How often a checkpoint is chosen, if the job deletes it before it is read."""


@dataclass
class Begun:
    """The flow that is replayed, and the checkpoint from which."""

    flow: Flow
    saves: Saves | None
    saved: Saved | None
    """None of both: from the beginning of the input."""

    @property
    def first(self) -> int:
        """The first epoch."""
        return 1 if self.saved is None else self.saved.checkpoint + 1

    def plan(self, flow: Flow, wishes: ResumeWishes | None = None) -> tuple[Plan, list[str]]:
        """The plan of a version, and notes on what has changed in the flow and in files."""
        from raystream.local.replay import changed_files, replay_plan

        plan, notes = replay_plan(flow, self.saves, self.saved, wishes)
        return plan, [*notes, *([] if self.saved is None else changed_files(plan, self.saved))]


def begin(job: str, url: str, start: str) -> Begun:
    """Find the flow and the checkpoint, and print which checkpoint it is.

    Args:
        job: `module:name` of the flow, or the name of a job that a command has run.
        url: the durable tier of the job; empty for none.
        start: as for `--from`; empty for the newest checkpoint.

    Raises:
        ConfigError: there is no such flow or checkpoint.
    """
    from raystream.durable.saves import Saves
    from raystream.durable.store import open_store

    flow = load(job) if ":" in job else None
    if start == "0" or not url:
        if flow is None:
            raise ConfigError(
                f"{job} is the name of a job: its checkpoints say where its flow is",
                hint="Say where they are, --durable URL; or name the flow, MODULE:FLOW.",
            )
        if start not in ("", "0"):
            raise ConfigError(f"--from {start} needs --durable URL")
        say(f"{flow.name} from the beginning of its input")
        return Begun(flow, None, None)
    store = open_store(url, make=False)
    saves = Saves(store, job if flow is None else flow.name)
    kept, saved = _held(saves, start)
    if flow is None:
        if not saved.code:
            raise ConfigError(
                f"{saved} does not say where the flow of {job} is",
                hint="It was not run by `raystream run`. Name the flow: MODULE:FLOW.",
            )
        flow = load(saved.code)
        if flow.name != job:
            raise ConfigError(f"{saved.code} is called {flow.name} now, not {job}")
    oldest = "the only one that is kept" if len(kept) == 1 else f"kept are {_labels(kept)}"
    say(f"from {saved} in {saves}; {oldest}")
    if saved.version:
        say(
            f"the job was upgraded: {saved.code or 'other code'} made that checkpoint. What runs"
            " here is the flow of this folder"
        )
    return Begun(flow, saves, saved)


def _labels(kept: list[Saved]) -> str:
    return ", ".join(saved.label for saved in reversed(kept))


def _held(saves: Saves, start: str) -> tuple[list[Saved], Saved]:
    """All checkpoints that are kept, and the one that `--from` names, whose images are held from
    now on. Where the job has deleted the newest while it was read, the one that is newest then.

    Raises:
        ConfigError: it is not kept, or not for long enough.
    """
    from raystream.errors import StateError

    for _ in range(TRIES):
        kept = saves.kept()
        saved = _chosen(saves, kept, start)
        try:
            saves.hold(saved)
        except StateError:  # the job has saved newer ones meanwhile
            continue
        return kept, saved
    raise ConfigError(
        f"the job deletes its checkpoints in {saves} before they are read",
        hint="It keeps more with `run --keep N`, and for longer with `--checkpoint-seconds`.",
    )


def _chosen(saves: Saves, kept: list[Saved], start: str) -> Saved:
    """The checkpoint that `--from` names.

    Raises:
        ConfigError: it is not kept.
    """
    if not kept:
        raise ConfigError(
            f"no checkpoint is in {saves}", hint="A run with --durable saves them there."
        )
    found = [s for s in kept if not start or start in (s.label, str(s.checkpoint))]
    if not found:
        raise ConfigError(
            f"checkpoint {start} is not in {saves}",
            hint=f"There are {_labels(kept)}: a replay reaches back to the oldest that is kept."
            " `run --keep N` keeps more.",
        )
    return found[0]


def load(target: str, folder: str = "") -> Flow:
    from raystream.cli.load import load_flow

    return load_flow(target, folder)


def wishes_of(rename: str, drop: str) -> ResumeWishes:
    from raystream.cli.load import parse_drops, parse_renames
    from raystream.controller.planning.changes import ResumeWishes

    return ResumeWishes(parse_renames(rename), parse_drops(drop))


def refuse_looking(operator: str, key: str, *, show: bool, debug: bool) -> None:
    if operator or key or show or debug:
        raise ConfigError(
            "--code compares what two versions make; --operator, --key, --show and --debug look at"
            " one",
            hint="Replay the other version by itself: raystream replay MODULE:FLOW ... --show.",
        )


def say(text: str) -> None:
    typer.echo(text, err=True)


def _until_there(replay: Replay, turn: Callable[[], Any]) -> None:
    """Call `turn` until it returns what is false. Wait a moment before each call in which a source
    that may be idle has nothing."""
    import time

    from raystream.local.run import pause_of

    while True:
        if (pause := pause_of(replay.job)) is not None:
            time.sleep(pause)
        if not turn():
            return


def look(
    begun: Begun,
    wishes: ResumeWishes,
    to: int | None,
    operator: str,
    key: str,
    *,
    show: bool,
    debug: bool,
) -> None:
    """Replay one version, and print its calls and totals, or debug it.

    Args:
        to: the last epoch; None for the end of the input.
        operator, key: the operator and the key whose calls are looked at; empty for all.
        show: print each call. debug: stop before each call, or without an operator and a key where
            the job fails.

    Raises:
        RaystreamError: the job fails as its run did, or the operator cannot be looked at.
    """
    from raystream.cli.replaying.debugging import Left, look_at, stop_before
    from raystream.local.probe import Probe
    from raystream.local.replay import Replay, uncertain
    from raystream.run import feed_of
    from raystream.schema.types import NEVER

    plan, notes = begun.plan(begun.flow, wishes)
    for note in (*notes, *uncertain(plan)):
        say(note)
    around = stop_before if debug and (operator or key) else None
    probe = Probe(operator, key, told=_show if show else None, around=around)
    if show or operator or key:
        probe.put_into(plan)
    made: dict[str, int] = {}
    replay = Replay(plan, begun.saves, before=probe.before, feed=feed_of(plan))
    try:
        with replay:
            before = replay.read

            def turn() -> bool:
                more = replay.turn(to or NEVER)
                for output in replay.taken():
                    made[output.sink] = made.get(output.sink, 0) + len(output.records)
                return more

            _until_there(replay, turn)
            say(_summary(begun.first, replay, replay.read - before, made))
    except Left:
        say("left the debugger")
    except RaystreamError as error:
        if debug and around is None and error.__cause__ is not None:
            look_at(error)
        raise


def _summary(first: int, replay: Replay, read: int, made: dict[str, int]) -> str:
    sinks = [v.name for v in replay.plan.vertices if v.kind == "sink"]
    counts = ", ".join(f"{made.get(name, 0):,} for {name}" for name in sinks)
    end = " (the end of the input)" if replay.ended else ""
    if replay.at < first:
        return f"nothing comes after epoch {replay.at}{end}"
    return (
        f"replayed epochs {first} to {replay.at}{end}: {read:,} records were read, and made"
        f" {counts}; nothing was written"
    )


def _show(visit: Visit) -> None:
    """Print a call."""
    key = "" if visit.key is None else f"  key {visit.key!r}"
    lines = [f"epoch {visit.epoch}  {visit.operator}{key}"]
    given = visit.given if isinstance(visit.given, list) else [visit.given]
    named = {"process": "in", "timer": "timer at", "close": "close"}[visit.step]
    lines += [f"  {named:8} {each!r}" for each in given]
    if visit.before:
        lines += [f"  {'before':8} {visit.before}", f"  {'after':8} {visit.after}"]
    lines += [f"  {'out':8} {each!r}" for each in visit.emitted]
    if visit.raised is not None:
        lines.append(f"  {'raised':8} {type(visit.raised).__name__}: {visit.raised}")
    typer.echo("\n".join(lines))


def compare(
    begun: Begun,
    other: Flow,
    wishes: ResumeWishes,
    to: int | None,
    most: int,
    out: str = "",
) -> bool:
    """Replay two versions, and print how they differ. Returns whether they do.

    Args:
        other: the second version. wishes: what becomes of saved state where it has changed.
        to: the last epoch; None for the end of the input.
        most: how many differences are printed.
        out: the folder into which the output of the second version is written; empty for nowhere.

    Raises:
        RaystreamError: the second version has failed.
    """
    from raystream.local.comparing import Compared, Pair
    from raystream.local.replay import Replay, uncertain
    from raystream.run import feed_of
    from raystream.schema.types import NEVER

    plan, notes = begun.plan(begun.flow)
    second, changes = begun.plan(other, wishes)
    for note in dict.fromkeys((*notes, *changes, *uncertain(plan))):
        say(note)
    found = 0

    def tell(compared: Compared) -> None:
        nonlocal found
        for difference in compared.differences:
            found += 1
            if found <= most:
                typer.echo("\n".join(difference.lines()))
            elif found == most + 1:
                typer.echo(SHOWS_MORE)

    with ExitStack() as both:
        one = Replay(plan, begun.saves, keeps=True, feed=feed_of(plan))
        two = Replay(second, begun.saves, keeps=True, feed=feed_of(second), write_to=out or None)
        both.enter_context(one)
        both.enter_context(two)
        pair = Pair(one, two, wishes.rename)

        def turn() -> bool:
            compared = None if left else pair.turn(to or NEVER)
            if compared is not None:
                tell(compared)
            return compared is not None

        left = both.enter_context(interrupts())
        try:
            _until_there(one, turn)
        except RaystreamError:  # an error of the first version is in `pair.failed`
            say(f"the second version ends in epoch {two.at + 1}:")
            raise
        say(outcome(pair, begun.first, found))
    return found > 0


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """A context in which Ctrl-C only adds to the list, so that an epoch is compared as a whole."""
    import signal

    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def outcome(pair: Pair, first: int, found: int) -> str:
    lines = [f"{name}: only one version has this sink" for name in pair.alone]
    if pair.failed is not None:
        lines.append(f"the first version ended in epoch {pair.first.at + 1}: {pair.failed}")
        lines.append(f"the second went through that epoch, up to {pair.second.at}")
    if pair.first.at < first:
        return "\n".join([*lines, "no epoch was compared"])
    places = "place" if found == 1 else "places"
    differ = f"they differ in {found:,} {places}" if found else "no record differs"
    lines.append(
        f"compared epochs {first} to {pair.first.at}, {pair.records:,} records of"
        f" {', '.join(pair.common) or 'no sink'}: {differ}"
    )
    return "\n".join(lines)
