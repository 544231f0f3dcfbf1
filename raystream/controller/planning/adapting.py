"""A saved checkpoint as one of the flow as it is now: with it a run of a changed flow begins.

The images stay as they were stored. The manifest says of each operator with what it begins, so
every shell, and every later restore of the same checkpoint, does as if the flow had always been as
it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from raystream.controller.planning.changes import Changes, ResumeWishes, changes_of, flow_now
from raystream.controller.protocol.saving import columns_of
from raystream.dataflow.plan import Plan, Vertex, split_group
from raystream.dataflow.sources.recorded import cutting_of
from raystream.dataflow.upgrading.versions import version_at
from raystream.durable.manifest import Inherited, RangeEnd, Saved, SavedChain
from raystream.durable.saves import Saves
from raystream.errors import StateError
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange


class Adapted(NamedTuple):
    """A saved checkpoint in the flow as it is now."""

    saved: Saved | None
    """The checkpoint as one of the plan; None if the flow has not changed since."""
    notes: tuple[str, ...]
    """What has changed, in words."""


def adapted(saves: Saves, plan: Plan, saved: Saved | None, wishes: ResumeWishes | None) -> Adapted:
    """The checkpoint with which a run begins, as one of its plan.

    Raises:
        StateError: the plan cannot go on from it.
    """
    plan = plan if saved is None else _as_it_was(plan, saved)
    changes = saved and changes_of(saved, flow_now(plan), wishes)
    if not (saved and changes):
        return Adapted(None, ())
    return Adapted(_adapted(saves, plan, saved, changes), changes.notes)


def _as_it_was(plan: Plan, saved: Saved) -> Plan:
    """The plan with the version of the code that made a checkpoint of the same submitter."""
    version = None if plan.durable is None else version_at(plan.durable.versions, saved.checkpoint)
    if version is None:
        return plan
    return replace(plan, vertices=[version.of(v) for v in plan.vertices])


def _adapted(saves: Saves, plan: Plan, saved: Saved, changes: Changes) -> Saved:
    was, now = changes.was, flow_now(plan)
    places = _places(saves, plan, saved, changes)
    begins = {
        v.name: Inherited(
            was=was[v.name],
            watermark=places[v.name].watermark,
            inlets=_ended_inlets(plan, v, places),
            groups=_groups(plan, v) if v.name in changes.splits else None,
        )
        for v in plan.vertices
    }
    nothing = (SavedChain(KeyRange(0, plan.groups), ()),)
    return replace(
        saved,
        layout=replace(
            now.layout,
            shapes={
                name: saved.layout.shapes[old] if old else now.layout.shapes[name]
                for name, old in was.items()
            },
        ),
        chains={name: saved.chains[old] if old else nothing for name, old in was.items()},
        splits=dict(now.splits),
        columns=columns_of(plan),
        begins=begins,
        marks=_marks(plan, saved, was),
    )


class _Stands(NamedTuple):
    """Where a vertex of the flow stands at the checkpoint."""

    watermark: int
    ended: int
    """Its last epoch, if it has ended; 0 if it has not."""
    over: bool
    """Whether it has ended, or begins only to end: all that it reads has ended."""


def _places(saves: Saves, plan: Plan, saved: Saved, changes: Changes) -> dict[str, _Stands]:
    """Where each vertex stands.

    Raises:
        StateError: one that has ended, and so has no rows any more, would get records.
    """
    found: dict[str, _Stands] = {}
    for vertex in plan.vertices:  # each comes after those that feed it
        name, old = vertex.name, changes.was[vertex.name]
        feeders = [plan.vertices[e.producer].name for e in vertex.inputs]
        if not old:
            over = bool(feeders) and all(found[f].over for f in feeders)
            found[name] = _Stands(_first_watermark(plan, saved, vertex, feeders, found), 0, over)
            continue
        ends = saves.ends(saved, old)
        ended = all(h.input_position.ended for h in ends) and name not in changes.splits
        watermark = NEVER if ended else min(h.input_position.watermark for h in ends)
        found[name] = _Stands(watermark, max(h.checkpoint for h in ends) if ended else 0, ended)
        if ended and (more := [f for f in feeders if not found[f].over]):
            raise StateError(
                f"the input of {name} had ended at {saved}, and it would get more from"
                f" {', '.join(more)}",
                hint="What it kept is over, too: --drop " + old + " begins it with nothing, --fresh"
                " (resume=False) begins the job again.",
            )
    return found


def _first_watermark(
    plan: Plan, saved: Saved, vertex: Vertex, feeders: list[str], found: Mapping[str, _Stands]
) -> int:
    """The watermark of a vertex that begins with nothing: what is late for others at this
    checkpoint is late for it, too."""
    if vertex.kind != "source":
        return min((found[f].watermark for f in feeders), default=BEFORE_ALL)
    if plan.clock is None or vertex.epochs is None:
        return BEFORE_ALL
    return cutting_of(vertex.epochs, plan.clock, plan.ticks).watermark(saved.checkpoint)


def _ended_inlets(
    plan: Plan, vertex: Vertex, places: Mapping[str, _Stands]
) -> dict[int, tuple[RangeEnd, ...]]:
    """By edge, the end of its producer. A source that has ended says so once more by itself."""
    producers = {e.id: plan.vertices[e.producer] for e in vertex.inputs}
    return {
        edge: ((places[p.name].ended, 0, plan.groups),)
        for edge, p in producers.items()
        if places[p.name].ended and p.kind != "source"
    }


def _groups(plan: Plan, vertex: Vertex) -> dict[str, int]:
    """The key group of each split of a source."""
    names = plan.splits[vertex.id]
    return {name: split_group(i, len(names), plan.groups) for i, name in enumerate(names)}


def _marks(plan: Plan, saved: Saved, was: Mapping[str, str]) -> dict[str, str]:
    """What marks the output of each sink, where that is not its name."""
    sinks = [v.name for v in plan.vertices if v.kind == "sink"]
    marks = {name: saved.marks.get(old, old) for name in sinks if (old := was[name])}
    for name in sinks:
        if name not in marks:
            taken, mark = set(marks.values()), name
            while mark in taken:
                mark += "+"
            marks[name] = mark
    return {name: mark for name, mark in marks.items() if mark != name}
