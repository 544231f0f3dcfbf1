"""The commands `replay` and `fork`: a job again from a saved checkpoint, in this process; also with
another version of its code, and the difference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raystream.cli.errors import FAILED, errors_reported
from raystream.errors import ConfigError, RaystreamError

if TYPE_CHECKING:
    from raystream.api.flow import Flow
    from raystream.controller.planning.changes import ResumeWishes
    from raystream.durable.manifest import Saved
    from raystream.durable.saves import Saves
    from raystream.local.probe import Visit
    from raystream.local.replay import Replay

SHOWN = 20
"""How many differences are shown, unless told otherwise."""
LOOK, CODE = "What is looked at", "Another version of the code"
"""Groups of options."""

Durable = Annotated[
    str,
    typer.Option(
        metavar="URL", help="The folder or s3://bucket/prefix to which the job saves checkpoints."
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="CUT",
        help="The saved checkpoint to begin with: RUN-EPOCH, or EPOCH; the newest unless given.",
    ),
]
To = Annotated[
    int | None,
    typer.Option(
        metavar="EPOCH", min=1, help="The last epoch; unless given, to the end of the input."
    ),
]
CodeFolder = Annotated[
    str,
    typer.Option(
        metavar="FOLDER",
        help="Where the module of --code is looked for first, also if another one of its name is in"
        " the current folder.",
        rich_help_panel=CODE,
    ),
]
Renames = Annotated[
    str,
    typer.Option(
        metavar="OLD=NEW,...",
        help="As of `run --resume`: what is called otherwise in the version that is run.",
        rich_help_panel=CODE,
    ),
]
Drops = Annotated[
    str,
    typer.Option(
        metavar="NAME,...",
        help="As of `run --resume`: what was saved of these may go.",
        rich_help_panel=CODE,
    ),
]
Differences = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="How many differences are shown.", rich_help_panel=CODE),
]


def replay(
    job: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FLOW|JOB",
            help="The flow of the job; or the name of the job, where a command has run it: its"
            " checkpoints say where its flow was found.",
            show_default=False,
        ),
    ],
    durable: Durable,
    start: From = "",
    to: To = None,
    operator: Annotated[
        str, typer.Option(metavar="NAME", help="Look at this one.", rich_help_panel=LOOK)
    ] = "",
    key: Annotated[
        str, typer.Option(metavar="KEY", help="Look at this key only.", rich_help_panel=LOOK)
    ] = "",
    show: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Print each call: its record, the row before and after it, what it emits.",
            rich_help_panel=LOOK,
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Stop in Python's debugger before each record of --operator or --key; without"
            " these, where the job fails.",
            rich_help_panel=LOOK,
        ),
    ] = False,
    code: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FLOW",
            help="Also run this version, and show what it makes otherwise.",
            rich_help_panel=CODE,
        ),
    ] = "",
    code_folder: CodeFolder = "",
    rename: Renames = "",
    drop: Drops = "",
    differences: Differences = SHOWN,
) -> None:
    """Run a job again from a saved checkpoint, in this process: the same bits, and the same errors.

    Reads its sources again and writes to no sink. Ends as the job did; with --code with exit code 1
    if the two versions differ.

    Example: raystream replay words:flow --durable /checkpoints --operator count --key to --show
    """
    with errors_reported("interrupted"):
        begun = _begin(job, durable, start)
        wishes = _wishes(rename, drop)
        if code:
            _refuse_looking(operator, key, show=show, debug=debug)
            other = _load(code, code_folder)
            differ = _compare(begun, other, wishes, to, differences, None)
            raise SystemExit(FAILED if differ else 0)
        if code_folder:
            raise ConfigError("--code-folder needs --code")
        _look(begun, wishes, to, operator, key, show=show, debug=debug)


def fork(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="The name of a job, or MODULE:FLOW of it.", show_default=False
        ),
    ],
    code: Annotated[
        str,
        typer.Option(metavar="MODULE:FLOW", help="The new version.", rich_help_panel=CODE),
    ],
    durable: Durable,
    name: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="What the new version is called meanwhile."),
    ],
    start: From = "",
    to: To = None,
    out: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Write what the new version makes into FOLDER/NAME/SINK, as Parquet files; unless"
            " given, it is written nowhere.",
        ),
    ] = "",
    code_folder: CodeFolder = "",
    rename: Renames = "",
    drop: Drops = "",
    differences: Differences = SHOWN,
) -> None:
    """Run a new version of a job beside the old one, on the same input, and report where their
    output differs, as it comes. The job itself goes on, and notices nothing.

    Both versions begin at a saved checkpoint of the job, in this process, read its sources by
    themselves, and write to no sink of the job. Until the end of the input, --to, or Ctrl-C. Ends
    with exit code 1 if they differ.

    Example: raystream fork words --as trial --code words:flow --code-folder ../new --durable /cuts
    """
    with errors_reported("interrupted"):
        begun = _begin(job, durable, start)
        other = _load(code, code_folder)
        other.name = name
        differ = _compare(begun, other, _wishes(rename, drop), to, differences, out)
        raise SystemExit(FAILED if differ else 0)


@dataclass
class _Begun:
    """What is replayed, and from where."""

    flow: Flow
    saves: Saves
    saved: Saved


def _begin(job: str, url: str, start: str) -> _Begun:
    """Find the flow and the checkpoint, and say which one it is.

    Raises:
        ConfigError: there is none.
    """
    from raystream.durable.saves import Saves
    from raystream.durable.store import open_store

    store = open_store(url)
    flow = _load(job) if ":" in job else None
    saves = Saves(store, job if flow is None else flow.name)
    kept = saves.kept()
    saved = _chosen(saves, kept, start)
    if flow is None:
        if not saved.code:
            raise ConfigError(
                f"{saved} does not say where the flow of {job} is",
                hint="It was not run by `raystream run`. Name the flow: MODULE:FLOW.",
            )
        flow = _load(saved.code)
        if flow.name != job:
            raise ConfigError(f"{saved.code} is called {flow.name} now, not {job}")
    oldest = "the only one that is kept" if len(kept) == 1 else f"kept are {_labels(kept)}"
    _say(f"from {saved} in {saves}; {oldest}")
    return _Begun(flow, saves, saved)


def _labels(kept: list[Saved]) -> str:
    return ", ".join(saved.label for saved in reversed(kept))


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


def _load(target: str, folder: str = "") -> Flow:
    from raystream.cli.load import load_flow

    return load_flow(target, folder)


def _wishes(rename: str, drop: str) -> ResumeWishes:
    from raystream.cli.load import parse_drops, parse_renames
    from raystream.controller.planning.changes import ResumeWishes

    return ResumeWishes(parse_renames(rename), parse_drops(drop))


def _refuse_looking(operator: str, key: str, *, show: bool, debug: bool) -> None:
    if operator or key or show or debug:
        raise ConfigError(
            "--code compares what two versions make; --operator, --key, --show and --debug look at"
            " one",
            hint="Replay the other version by itself: raystream replay MODULE:FLOW ... --show.",
        )


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _until_there(replay: Replay, turn: Callable[[], Any]) -> None:
    """Take turns to the end. Where nothing has come of a source that waits, wait a moment."""
    import time

    from raystream.local.run import pause_of

    while True:
        if (pause := pause_of(replay.job)) is not None:
            time.sleep(pause)
        if not turn():
            return


def _look(
    begun: _Begun,
    wishes: ResumeWishes,
    to: int | None,
    operator: str,
    key: str,
    *,
    show: bool,
    debug: bool,
) -> None:
    """Replay one version, and show what is asked for."""
    from raystream.cli.debugging import Left, look_at, stop_before
    from raystream.local.probe import Probe
    from raystream.local.replay import Replay, changed_files, replay_plan, uncertain
    from raystream.run import feed_of
    from raystream.schema.types import NEVER

    plan, notes = replay_plan(begun.flow, begun.saves, begun.saved, wishes)
    for note in (*notes, *changed_files(plan, begun.saved), *uncertain(plan)):
        _say(note)
    around = stop_before if debug and (operator or key) else None
    probe = Probe(operator, key, told=_show if show else None, around=around)
    if show or around is not None or operator or key:
        probe.put_into(plan)
    made: dict[str, int] = {}
    replay = Replay(plan, begun.saves, before=probe.before, feed=feed_of(plan))
    first = begun.saved.checkpoint + 1
    try:
        with replay:
            before = replay.read

            def turn() -> bool:
                more = replay.turn(to or NEVER)
                for output in replay.taken():
                    made[output.sink] = made.get(output.sink, 0) + len(output.records)
                return more

            _until_there(replay, turn)
            _say(_summary(first, replay, replay.read - before, made))
    except Left:
        _say("left the debugger")
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


def _compare(
    begun: _Begun,
    other: Flow,
    wishes: ResumeWishes,
    to: int | None,
    most: int,
    out: str | None,
) -> bool:
    """Replay two versions, and show how they differ. Returns whether they do.

    Args:
        out: where the output of the second is written; None or empty for nowhere.
    """
    from raystream.local.comparing import Compared, Pair
    from raystream.local.replay import Replay, changed_files, replay_plan, uncertain
    from raystream.run import feed_of
    from raystream.schema.types import NEVER

    plan, notes = replay_plan(begun.flow, begun.saves, begun.saved)
    second, changes = replay_plan(other, begun.saves, begun.saved, wishes)
    for note in (*notes, *changes, *changed_files(plan, begun.saved), *uncertain(plan)):
        _say(note)
    found = 0

    def tell(compared: Compared) -> None:
        nonlocal found
        for difference in compared.differences:
            found += 1
            if found <= most:
                typer.echo("\n".join(difference.lines()))
            elif found == most + 1:
                typer.echo("more differ: --differences N shows them")

    with ExitStack() as both:
        one = Replay(plan, begun.saves, keeps=True, feed=feed_of(plan))
        two = Replay(second, begun.saves, keeps=True, write_to=out or None)
        both.enter_context(one)
        both.enter_context(two)
        pair = Pair(one, two, wishes.rename)

        def turn() -> bool:
            compared = pair.turn(to or NEVER)
            if compared is not None:
                tell(compared)
            return compared is not None

        try:
            _until_there(one, turn)
        except KeyboardInterrupt:
            _say("interrupted")
        except RaystreamError:  # of the first one it is in `failed`
            _say(f"the second version ends in epoch {two.at + 1}:")
            raise
        _say(_outcome(pair, begun.saved.checkpoint + 1, found))
    return found > 0


def _outcome(pair: Any, first: int, found: int) -> str:
    lines = [f"{name}: only one version has this sink" for name in pair.alone]
    if pair.failed is not None:
        lines.append(f"the first version ended in epoch {pair.first.at + 1}: {pair.failed}")
        lines.append(f"the second went through that epoch, up to {pair.second.at}")
    places = "place" if found == 1 else "places"
    differ = f"they differ in {found:,} {places}" if found else "no record differs"
    lines.append(
        f"compared epochs {first} to {pair.first.at}, {pair.records:,} records of"
        f" {', '.join(pair.common) or 'no sink'}: {differ}"
    )
    return "\n".join(lines)
