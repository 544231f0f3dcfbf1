"""From a flow to a plan: list the splits once, look at the first rows, settle the clock."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from raystream.api.epochs import Epochs
from raystream.api.flow import Flow
from raystream.api.nodes import SourceNode
from raystream.controller.planning.changes import ResumeWishes, changes_of, flow_now
from raystream.controller.planning.no_watermark import warn_of_no_watermark
from raystream.controller.planning.program import program_of
from raystream.controller.planning.time_units import warn_of
from raystream.dataflow.plan import Clock, Plan, plan_of, vertices_of
from raystream.dataflow.sources.pace import length_of
from raystream.dataflow.sources.recorded import cutting_of
from raystream.dataflow.sources.split_reader import SplitReader
from raystream.durable.manifest import Saved, differs
from raystream.errors import (
    ConfigError,
    InputError,
    OperatorError,
    RaystreamError,
    user_frame,
    what_was_raised,
)
from raystream.filesystem import seen_file
from raystream.schema.types import BEFORE_ALL, NEVER, Split

TAKEN_SECONDS = 0.05
"""Real seconds that an epoch of an unpaced run is taken to last, where the time between checkpoints
is given and not the number of epochs."""


def make_plan(
    flow: Flow,
    *,
    instances: Mapping[str, int] | None = None,
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 5.0,
    check: bool = False,
    rows: Mapping[str, int] | None = None,
    saved: Saved | None = None,
    wishes: ResumeWishes | None = None,
) -> Plan:
    """The plan of a job. Asks each source for its splits and reads the first batch of each.

    Args:
        checkpoint_every: epochs between checkpoints; from `checkpoint_seconds` and the pace if not
        given.
        check: checking mode.
        rows: see `plan_of`.
        saved: the checkpoint to go on from. Then nothing is read, because its clock goes on.
        wishes: what becomes of what is saved, where the flow has changed.

    Raises:
        ConfigError: there would be no checkpoints, or see `plan_of`.
        GraphError: see `plan_of`.
        InputError: a source has no splits.
        StateError: the flow cannot go on from the saved checkpoint.
    """
    if checkpoint_every is not None and checkpoint_every < 1:
        raise ConfigError(
            f"{checkpoint_every=}: it is the number of epochs between checkpoints, at least 1"
        )
    if not 0 <= checkpoint_seconds < math.inf:
        raise ConfigError(
            f"{checkpoint_seconds=}: it is the time between checkpoints, at least 0 and finite"
        )
    vertices_of(flow)  # refuses a flow that cannot be run, before anything is read
    sources = [n for n in flow.nodes if isinstance(n, SourceNode)]
    found = {n.name: _splits(n) for n in sources}
    splits = {name: [s.name for s in listed] for name, listed in found.items()}
    clock = (
        _clock(flow, sources, found)
        if saved is None
        else _clock_of(saved, sources, wishes or ResumeWishes())
    )
    if checkpoint_every is None:
        checkpoint_every = max(1, round(checkpoint_seconds / _epoch_real_seconds(sources, clock)))
    plan = plan_of(
        flow, splits,
        instances=instances, clock=clock, checkpoint_every=checkpoint_every, check=check, rows=rows,
    )  # fmt: skip
    for n in sources:
        plan.starts[plan.vertex(n.name).id] = {s.name: s.begin for s in found[n.name] if s.begin}
    if saved is not None:
        changes_of(saved, flow_now(plan), wishes)  # refuses one that does not fit
    for node in sources:
        if clock is not None:
            cutting_of(node.epochs, clock, flow.ticks)
    warn_of_no_watermark(plan)
    plan.program = program_of(plan)
    plan.code = flow.code
    names = (s.name for listed in found.values() for s in listed)
    plan.files = {name: seen for name in names if (seen := seen_file(name))}
    return plan


@contextmanager
def _warning_at(node: SourceNode) -> Iterator[None]:
    """What a source warns of names the line where it joins the flow."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in told:
        warnings.warn_explicit(each.message, each.category, node.where.file, node.where.line)


def _splits(node: SourceNode) -> list[Split]:
    try:
        with _warning_at(node):
            found = list(node.source.splits())
    except RaystreamError as error:
        error.where = error.where or node.where
        raise
    except Exception as error:
        raise OperatorError(
            f"{node.name}.splits() raised {what_was_raised(error)}",
            where=user_frame(error) or node.where,
        ) from error
    for split in found:
        if not (isinstance(split, Split) and isinstance(split.name, str)):
            found_one = repr(split) if isinstance(split, Split) else f"a {type(split).__name__}"
            raise InputError(
                f"{node.name}.splits() returns {found_one} among its splits",
                where=node.where,
                hint="Return a list of rs.Split(name), whose names are text.",
            )
    names = [s.name for s in found]
    if not names:
        raise InputError(
            f"source {node.name} has no splits: there is nothing to read", where=node.where
        )
    if len(set(names)) < len(names):
        raise InputError(f"source {node.name} names a split twice", where=node.where)
    return found


def _epoch_real_seconds(sources: list[SourceNode], clock: Clock | None) -> float:
    if clock is None:
        return sources[0].epochs.seconds or TAKEN_SECONDS
    return clock.seconds / clock.speed if clock.speed else TAKEN_SECONDS


def _clock(flow: Flow, sources: list[SourceNode], splits: dict[str, list[Split]]) -> Clock | None:
    """The job's clock, if its sources are cut into epochs by time: all of them in the same way."""
    timed = [n for n in sources if n.epochs.column is not None]
    if not timed:
        return None
    speed = _one("speed", [n.epochs.speed for n in timed], timed)
    seconds = _one("seconds", [n.epochs.seconds for n in timed], timed)
    if seconds is None:
        seconds = length_of(speed, min(n.epochs.ticks for n in timed) * flow.ticks)
    found = []
    for n in timed:
        first = _first(n, splits[n.name])
        if first is None:
            continue
        found.append(first)
        if n.epochs.origin is None:
            warn_of(n.name, int(first * n.epochs.ticks), flow.ticks * n.epochs.ticks, n.where)
    parts = max(n.epochs.ticks for n in timed)
    length = Fraction(max(1, round(seconds * flow.ticks * parts)), parts)
    return Clock(_number(min(found, default=Fraction(0)) // length * length), seconds, speed)


def _number(exact: Fraction) -> float:
    """A time as manifests have it: an exact int if it is a whole number of 64 bits, otherwise a
    float. It is whole unless a source's column is in a finer unit than the flow."""
    whole = exact.denominator == 1 and BEFORE_ALL <= exact <= NEVER
    return int(exact) if whole else float(exact)


def _clock_of(saved: Saved, sources: list[SourceNode], wishes: ResumeWishes) -> Clock | None:
    """The clock of a saved checkpoint, which goes on; the pace may be a new one."""
    was = {name: old for old, name in wishes.rename.items() if old in saved.columns}
    timed = [n for n in sources if n.epochs.column is not None]
    seconds = _one("seconds", [n.epochs.seconds for n in timed], timed)
    before = saved.clock
    if bool(timed) != (before is not None) or (before and seconds not in (None, before[1])):
        raise differs(
            saved,
            "other epochs",
            _in_words(before is not None, before[1] if before else None),
            _in_words(bool(timed), seconds),
        )
    if before is None:
        return None
    for n in timed:
        now = (n.epochs.column, n.epochs.ticks)
        then = saved.columns.get(was.get(n.name, n.name), now)
        if then != now and n.name not in wishes.drop:
            words = [f"by_time({column!r}, ticks={ticks})" for column, ticks in (then, now)]
            raise differs(saved, f"other epochs of {n.name}", *words)
    return Clock(before[0], before[1], _one("speed", [n.epochs.speed for n in timed], timed))


def _in_words(timed: bool, seconds: float | None) -> str:
    if not timed:
        return "by_arrival()"
    return "by_time()" if seconds is None else f"by_time(seconds={seconds:g})"


def _one(what: str, values: list[Any], nodes: list[SourceNode]) -> Any:
    given = {v for v in values if v is not None}
    if len(given) > 1:
        raise ConfigError(
            f"by_time({what}=...) differs between sources: {sorted(given)}",
            where=nodes[-1].where,
            hint="Epochs belong to the job: all sources are cut in the same way.",
        )
    return given.pop() if given else None


def _first(node: SourceNode, splits: list[Split]) -> Fraction | None:
    """The time at which a source begins, in the flow's unit: its origin if one is given, otherwise
    the least first value of its splits. None if it has no rows: then other sources say where the
    job begins."""
    epochs: Epochs = node.epochs
    if epochs.origin is not None:
        return Fraction(epochs.origin) / epochs.ticks
    assert epochs.column is not None
    found: list[int] = []
    for split in splits:
        read, where = node.source.read, node.where
        reader = SplitReader(split.name, node.name, node.schema, read, split.begin, where=where)
        rows = reader.next()
        reader.close()
        if rows is not None:
            found.append(int(rows.column(epochs.column)[0]))  # whatever its batches are
    return Fraction(min(found), epochs.ticks) if found else None
