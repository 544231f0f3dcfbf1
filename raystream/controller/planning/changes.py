"""What a flow that has changed makes of a saved checkpoint: what begins empty, goes or moves.

`changes_of` decides, from the manifest, the flow as it is now, and what the user wishes. It looks
at no image. Operators that the flow has under the same name go on; a new one begins empty. State is
never lost without a word: the user says that an operator has another name now (`rename`) or that
what was saved of it may go (`drop`), otherwise the flow is refused with these words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raystream.api.row_shapes import shape_of
from raystream.controller.protocol.saving import layout_of
from raystream.dataflow.plan import Plan
from raystream.durable.manifest import ANEW, Saved, SavedLayout, differs
from raystream.errors import StateError
from raystream.state.images.row_shape import RowShape

HELD_BY = (".wait",)
"""What raystream adds to the name of an operator for a part of it that keeps rows of its own."""
NAMED = 5
"""How many splits a message names."""


class ResumeWishes(NamedTuple):
    """What the user says of a flow that has changed."""

    rename: Mapping[str, str] = {}
    """The new names of operators, sources and sinks, by the names that they had."""
    drop: Collection[str] = ()
    """Names whose saved state may go. An operator of that name that is still there begins empty."""


@dataclass(frozen=True, kw_only=True)
class FlowNow:
    """A flow as it is now, as far as a saved checkpoint has to fit it."""

    layout: SavedLayout
    splits: Mapping[str, tuple[str, ...]]
    """Per source the names of its splits, in order."""
    rows: Mapping[str, RowShape] = field(default_factory=dict)
    """Per operator with state the shape of its rows."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What becomes of a saved checkpoint in a flow."""

    was: Mapping[str, str]
    """Per vertex of the flow the one of the checkpoint with whose images it goes on; "" if it
    begins empty."""
    gone: tuple[str, ...]
    """What is saved of these vertices is dropped."""
    splits: Mapping[str, tuple[str, ...]]
    """Per source that has other splits, or other places of them, those that are new."""
    rewired: bool
    """Whether the streams are others, so that edges have other numbers."""
    notes: tuple[str, ...]
    """All of it in words, a line each."""

    def __bool__(self) -> bool:
        """Whether anything has changed that images depend on."""
        same = all(was == now for now, was in self.was.items())
        return not same or bool(self.gone or self.splits) or self.rewired


def flow_now(plan: Plan) -> FlowNow:
    """What of a plan has to fit a saved checkpoint."""
    shapes = {v.name: shape_of(v.spec) for v in plan.vertices if v.spec is not None}
    return FlowNow(
        layout=layout_of(plan),
        splits={plan.vertices[v].name: tuple(names) for v, names in plan.splits.items()},
        rows={name: shape for name, shape in shapes.items() if shape is not None},
    )


def changes_of(saved: Saved, now: FlowNow, wishes: ResumeWishes | None = None) -> Changes:
    """What becomes of a saved checkpoint in a flow.

    Raises:
        StateError: the flow cannot go on from it, or would lose state without a word.
    """
    for what, then, given in (
        ("another number of key groups", saved.layout.groups, now.layout.groups),
        ("another time unit (ticks a second)", saved.layout.ticks, now.layout.ticks),
    ):
        if then != given:
            raise differs(saved, what, str(then), str(given))
    rename, drop = _wishes(saved, now, wishes or ResumeWishes())
    before = {now_name: old for old, now_name in rename.items()}
    was: dict[str, str] = {}
    for name in now.layout.shapes:
        old = before.get(name, "" if name in rename else name)
        was[name] = "" if old in drop or old not in saved.layout.shapes else old
    gone = tuple(v for v in saved.layout.shapes if v not in was.values())
    _refuse_lost(saved, now, was, [v for v in gone if v not in drop])
    for name, old in was.items():
        if old and _refused_state(saved, now, name, old):
            was[name] = ""
    splits = {
        name: _new_splits(saved, name, old, now.splits[name])
        for name, old in was.items()
        if old in saved.splits and saved.splits[old] != now.splits[name]
    }
    rewired = saved.layout.edges != now.layout.edges
    notes = (*_notes(saved, now, was, splits), *(f"{v}: what was saved of it goes" for v in gone))
    return Changes(was=was, gone=gone, splits=splits, rewired=rewired, notes=notes)


# ---------------------------------------------------------------- wishes


def _wishes(saved: Saved, now: FlowNow, wishes: ResumeWishes) -> tuple[dict[str, str], set[str]]:
    """The wishes that are not fulfilled yet, also for parts of operators. A script may say the same
    each time: what has its new name in the checkpoint, or is not there, needs nothing.

    Raises:
        StateError: a wish makes no sense.
    """
    then, there = saved.layout.shapes, now.layout.shapes
    rename: dict[str, str] = {}
    for old, name in wishes.rename.items():
        if name not in there:
            raise _senseless(f"rename {old}={name}: the flow has no {name}", there)
        if old not in then and name not in then:
            raise _senseless(f"rename {old}={name}: {saved} has no {old}", then)
        if old in then:
            rename[old] = name
    for name in wishes.drop:
        if name not in then and name not in there:
            raise _senseless(f"drop {name}: neither {saved} nor the flow has it", then)
    drop = {name for name in wishes.drop if name in then}
    for end in HELD_BY:
        parts = {o + end: n + end for o, n in rename.items() if o + end in then}
        rename |= {o: n for o, n in parts.items() if n in there and o not in rename}
        drop |= {name + end for name in drop if name + end in then}
    for old, name in rename.items():
        _refuse_rename(saved, rename, drop, old, name)
    return rename, drop


def _refuse_rename(
    saved: Saved, rename: Mapping[str, str], drop: Collection[str], old: str, name: str
) -> None:
    if list(rename.values()).count(name) > 1:
        twice = ", ".join(o for o, n in rename.items() if n == name)
        raise StateError(f"rename: {twice} cannot all be {name} now", hint="Name one of them.")
    if old in drop:
        raise StateError(f"{old} is to be renamed and to be dropped", hint="Say one of these.")
    if name in saved.layout.shapes and name != old and name not in rename and name not in drop:
        raise StateError(
            f"rename {old}={name}: {saved} also has a {name}, whose state would be lost",
            hint=f"Say what becomes of it: --drop {name}, or --rename {name}=...",
        )


def _senseless(what: str, names: Collection[str]) -> StateError:
    return StateError(what, hint=f"There are {', '.join(names)}.")


# ---------------------------------------------------------------- refusals


_ARTICLED = {"source": "a source", "operator": "an operator", "sink": "a sink"}


def _refuse_lost(saved: Saved, now: FlowNow, was: Mapping[str, str], lost: Sequence[str]) -> None:
    """Refuse to lose what nobody said may go, and what is of another kind now."""
    for name, old in was.items():
        then, given = saved.layout.kind(old, saved.splits) if old else "", _kind(now, name)
        if then and then != given:
            raise StateError(
                f"{old} is {_ARTICLED[then]} in {saved}, and {name} is {_ARTICLED[given]} now",
                hint=f"Call the {given} something else, or let go what was saved of the {then}:"
                f" --drop {old} (drop=[{old!r}]).",
            )
    if not lost:
        return
    new = [name for name, old in was.items() if not old]
    words = []
    for name in lost:
        kind = saved.layout.kind(name, saved.splits)
        alike = [n for n in new if _fits(saved, now, name, n)] or [
            n for n in new if kind in ("", _kind(now, n))
        ]
        words += [
            f"If {name} is called {n} now: --rename {name}={n} (rename={{{name!r}: {n!r}}})."
            for n in alike[:NAMED]
        ]
        rows = " with its rows" if saved.layout.shapes[name] else ""
        words.append(f"If {name} may go{rows}: --drop {name} (drop=[{name!r}]).")
    raise StateError(
        f"{saved} has {', '.join(lost)}, which the flow does not have now",
        hint="\n  ".join(words),
    )


def _kind(now: FlowNow, name: str) -> str:
    return now.layout.kind(name, now.splits)


def _fits(saved: Saved, now: FlowNow, old: str, name: str) -> bool:
    """Whether two vertices look like the same one under another name."""
    return bool(saved.layout.shapes[old]) and saved.layout.shapes[old] == now.layout.shapes[name]


def _refused_state(saved: Saved, now: FlowNow, name: str, old: str) -> bool:
    """Whether an operator begins without rows, because it had none.

    Raises:
        StateError: it has rows of another shape, which no `upgrade` brings into the new one.
    """
    then, given = saved.layout.shapes[old], now.layout.shapes[name]
    if then == given:
        return False
    if not then:
        return True
    shape, remedy = now.rows.get(name), ANEW
    if shape is not None and shape.may_take(then):
        if shape.state.upgrade is not None:
            return False
        remedy = shape.upgrade_words
    remedy += f"\n  Or let its rows go, so that it begins empty: --drop {old} (drop=[{old!r}])."
    raise differs(saved, f"another state of {name}", then, given or "none", remedy)


_SPLITS = (
    "A split of a source that goes on stays: what is not read of it would be lost. Or begin again"
    " from the start: --fresh, resume=False."
)


def _new_splits(saved: Saved, name: str, old: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The splits that were not there before.

    Raises:
        StateError: one that was there is not there now.
    """
    then = saved.splits[old]
    if missing := [n for n in then if n not in set(names)]:
        more = [n for n in names if n not in set(then)]
        raise differs(saved, f"other splits of {name}", _some(missing), _some(more), _SPLITS)
    return tuple(n for n in names if n not in set(then))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more if names else "none but those"


# ---------------------------------------------------------------- words


def _notes(
    saved: Saved,
    now: FlowNow,
    was: Mapping[str, str],
    splits: Mapping[str, Sequence[str]],
) -> list[str]:
    first = f"epoch {saved.checkpoint + 1}"
    new = {
        "source": f"is new: it begins in {first}, and what is older there is late",
        "operator": f"begins empty in {first}",
        "sink": f"is new: it gets what comes from {first} on",
    }
    notes = []
    for name, old in was.items():
        if not old:
            notes.append(f"{name} {new[_kind(now, name)]}")
        elif old != name:
            notes.append(f"{name} was called {old}")
    for name, more in splits.items():
        if more:
            notes.append(f"{name} has new splits, which begin in {first}: {_some(more)}")
    return notes
