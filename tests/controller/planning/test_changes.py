"""What a flow that has changed makes of a saved checkpoint: decided from manifests alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.changes import Changes, FlowNow, ResumeWishes, changes_of
from raystream.durable.manifest import Saved, SavedLayout
from raystream.errors import StateError
from raystream.schema.fields import Field
from raystream.schema.state import state_schema
from raystream.state.images.row_shape import RowShape
from tests.examples import examples

KEY = (Field(name="word", kind="text"),)


class Tally(rs.State):
    n: int = 0


class Upgraded(rs.State):
    n: int = 0
    more: int = 0

    @classmethod
    def upgrade(cls, old: Any) -> Upgraded:
        return cls(old["n"], 0)


class Forgot(rs.State):
    n: int = 0
    more: int = 0


def shape(state: Any, keys: Any = KEY) -> RowShape:
    return RowShape(keys, state_schema(state))


TALLY, UPGRADED, FORGOT = (shape(c) for c in (Tally, Upgraded, Forgot))
OTHER = shape(Tally, (Field(name="user", kind="text"),))


def layout(**rows: RowShape | str) -> SavedLayout:
    """By vertex its rows, or what kind it is."""
    shapes = {v: r.fingerprint if isinstance(r, RowShape) else "" for v, r in rows.items()}
    kinds = {v: "operator" if isinstance(r, RowShape) else r for v, r in rows.items()}
    edges = tuple(f"all to {v}" for v in rows)
    return SavedLayout(16, 1, shapes, edges, kinds)


def then(splits: tuple[str, ...] = ("a", "b"), **rows: RowShape | str) -> Saved:
    made = layout(lines="source", **rows)
    return Saved("job", 1, "run", 40, 5, made, {}, {"lines": splits})


def now(splits: tuple[str, ...] = ("a", "b"), **rows: RowShape | str) -> FlowNow:
    made = layout(lines="source", **rows)
    mine = {v: splits for v, kind in made.kinds.items() if kind == "source"}
    return FlowNow(
        layout=made, splits=mine, rows={v: r for v, r in rows.items() if isinstance(r, RowShape)}
    )


FLOW: dict[str, Any] = {"count": TALLY, "out": "sink"}
SAVED, NOW = then(**FLOW), now(**FLOW)


def decide(flow: FlowNow, saved: Saved = SAVED, drop: Any = (), **rename: str) -> Changes:
    return changes_of(saved, flow, ResumeWishes(rename, drop))


def test_a_flow_that_is_the_same_changes_nothing() -> None:
    changes = decide(NOW)
    assert not changes and changes.notes == ()
    assert changes.was == {v: v for v in NOW.layout.shapes}


def test_what_is_new_begins_empty() -> None:
    more = now(**FLOW, more=TALLY, archive="sink", orders="source")
    changes = decide(more)
    assert changes and not changes.gone
    assert [v for v, was in changes.was.items() if not was] == ["more", "archive", "orders"]
    assert changes.notes == (
        "more begins empty in epoch 41",
        "archive is new: it gets what comes from epoch 41 on",
        "orders is new: it begins in epoch 41, and what is older there is late",
    )


def test_other_streams_are_a_change_that_needs_no_word() -> None:
    flow = replace(NOW, layout=replace(NOW.layout, edges=("others",)))
    assert decide(flow) and decide(flow).notes == ()


def test_what_is_gone_needs_a_word_and_the_words_are_there() -> None:
    with pytest.raises(StateError, match=r"has count, which the flow does not have") as told:
        decide(now(out="sink", tally=TALLY, other="sink"))
    assert told.value.hint.splitlines()[0].endswith(
        "--rename count=tally (rename={'count': 'tally'})."
    )
    assert "If count may go with its rows: --drop count (drop=['count'])." in told.value.hint
    assert "other" not in told.value.hint  # it is no operator
    with pytest.raises(StateError, match="has count, out, which") as told:
        decide(now(files="sink"))
    assert "--rename out=files" in told.value.hint and "If out may go: --drop" in told.value.hint
    assert "count=" not in told.value.hint


def test_what_may_go_goes() -> None:
    changes = decide(now(out="sink"), drop=["count"])
    assert changes.gone == ("count",) and changes.was == {"lines": "lines", "out": "out"}
    assert changes.notes == ("count: what was saved of it goes",)
    empty = decide(NOW, drop=["count"])
    assert empty.was["count"] == "" and empty.gone == ("count",)


def test_a_name_moves_and_two_names_change_places() -> None:
    changes = decide(now(tally=TALLY, out="sink"), count="tally")
    assert changes.was["tally"] == "count" and changes.notes == ("tally was called count",)
    two = then(one=TALLY, two=TALLY)
    swapped = decide(now(one=TALLY, two=TALLY), two, one="two", two="one")
    assert swapped.was == {"lines": "lines", "one": "two", "two": "one"} and not swapped.gone
    both = decide(now(one=TALLY, two=TALLY), then(one=TALLY), one="two")
    assert both.was == {"lines": "lines", "one": "", "two": "one"}


def test_a_wish_that_is_fulfilled_may_be_said_again() -> None:
    renamed = then(tally=TALLY, out="sink")
    flow = now(tally=TALLY, out="sink")
    assert not decide(flow, renamed, count="tally")
    assert not decide(now(out="sink", count=TALLY), drop=[]).gone


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (
            ResumeWishes({"count": "tally"}),
            "the flow has no tally(.|\n)*There are lines, count, out",
        ),
        (ResumeWishes({"nobody": "more"}), "has no nobody"),
        (ResumeWishes({}, ["nobody"]), "drop nobody: neither checkpoint 40 of run 1 of job nor"),
        (ResumeWishes({"count": "more", "out": "more"}), "count, out cannot all be more"),
        (ResumeWishes({"count": "more"}, ["count"]), "to be renamed and to be dropped"),
        (
            ResumeWishes({"count": "out"}),
            "also has a out, whose state would be lost(.|\n)*--drop out",
        ),
        (ResumeWishes({"lines": "more"}), "lines is a source in (.|\n)*more is an operator now"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(wishes: ResumeWishes, why: str) -> None:
    with pytest.raises(StateError, match=why):
        changes_of(SAVED, now(**FLOW, more=TALLY), wishes)


def test_another_shape_needs_an_upgrade_or_a_word() -> None:
    with pytest.raises(StateError, match=r"another state of count(.|\n)*def upgrade") as told:
        decide(now(count=FORGOT, out="sink"))
    assert "--drop count" in told.value.hint
    with pytest.raises(StateError, match=r"another state of tally(.|\n)*begin anew: --fresh"):
        decide(now(tally=OTHER, out="sink"), count="tally")
    with pytest.raises(StateError, match=r"another state of count(.|\n)*now:   none"):
        decide(now(count="operator", out="sink"))
    assert decide(now(count=UPGRADED, out="sink")).was["count"] == "count"
    assert decide(now(count=OTHER, out="sink"), drop=["count"]).was["count"] == ""


def test_an_operator_that_keeps_rows_only_now_begins_empty() -> None:
    changes = decide(NOW, then(count="operator", out="sink"))
    assert changes.was["count"] == "" and changes.notes == ("count begins empty in epoch 41",)


def test_a_name_that_stands_for_another_kind_is_refused() -> None:
    with pytest.raises(StateError, match=r"count is an operator in .* count is a sink now") as told:
        decide(now(count="sink", out="sink"))
    assert "--drop count" in told.value.hint
    assert decide(now(count="sink", out="sink"), drop=["count"]).was["count"] == ""


def test_new_splits_begin_and_none_may_be_missing() -> None:
    changes = decide(now(("b", "a", "c"), **FLOW))
    assert changes.splits == {"lines": ("c",)}
    assert changes.notes == ("lines has new splits, which begin in epoch 41: c",)
    assert decide(now(("b", "a"), **FLOW)).splits == {"lines": ()}
    with pytest.raises(StateError, match=r"other splits of lines\D*saved: b\n  now:   c"):
        decide(now(("a", "c"), **FLOW))
    assert decide(now(("a", "c"), **FLOW), drop=["lines"]).was["lines"] == ""


def test_key_groups_and_the_unit_of_time_stay() -> None:
    for other, why in (({"groups": 32}, "number of key groups"), ({"ticks": 9}, "time unit")):
        flow = replace(NOW, layout=replace(NOW.layout, **other))
        with pytest.raises(StateError, match=f"another {why}.*\n.*saved") as told:
            decide(flow)
        assert "begin anew: --fresh" in told.value.hint


def test_an_older_manifest_says_nothing_of_kinds() -> None:
    old = replace(SAVED, layout=replace(SAVED.layout, kinds={}))
    assert not decide(NOW, old)
    with pytest.raises(StateError, match="lines is a source"):
        decide(now(more=TALLY, **FLOW), old, lines="more")
    assert decide(now(count=TALLY, files="sink"), old, out="files").was["files"] == "out"


NAMES = st.sampled_from("abcdef")
KINDS = st.sampled_from([TALLY, UPGRADED, FORGOT, OTHER, "operator", "sink"])
FLOWS = st.dictionaries(NAMES, KINDS, max_size=5)


@examples(400)
@given(
    FLOWS,
    FLOWS,
    st.dictionaries(NAMES, NAMES, max_size=3),
    st.sets(NAMES, max_size=3),
    st.booleans(),
)
def test_nothing_that_is_saved_is_lost_without_a_word(
    old: Any, new: Any, rename: Any, drop: Any, kinds: bool
) -> None:
    """Whatever the flow was and is: it is refused, or all state goes on at one place, or the user
    said that it goes."""
    saved = (
        then(**old) if kinds else replace(then(**old), layout=replace(then(**old).layout, kinds={}))
    )
    flow = now(**new)
    try:
        changes = changes_of(saved, flow, ResumeWishes(rename, drop))
    except StateError:
        return
    assert set(changes.was) == set(flow.layout.shapes)
    origins = [was for was in changes.was.values() if was]
    assert len(origins) == len(set(origins)), "no state is there twice"
    for name, shape_then in saved.layout.shapes.items():
        places = [v for v, was in changes.was.items() if was == name]
        assert places or not shape_then or (name in drop and name in changes.gone)
    for name, was in changes.was.items():
        if was:
            assert name == was or rename.get(was) == name
            assert was not in drop
            stored, given = saved.layout.shapes[was], flow.layout.shapes[name]
            assert stored == given or flow.rows[name] is UPGRADED
    told = {note.partition(" ")[0] for note in changes.notes}
    assert {name for name, was in changes.was.items() if was != name} <= told
    assert not {name for name, was in changes.was.items() if was == name} & told


@examples(200)
@given(FLOWS, st.randoms(use_true_random=False))
def test_any_names_may_change_if_the_user_says_which(flow: Any, rng: Any) -> None:
    names = list(flow)
    shuffled = rng.sample(names, len(names)) if rng.random() < 0.5 else [f"{n}2" for n in names]
    rename = dict(zip(names, shuffled, strict=True))
    renamed = {rename[name]: rows for name, rows in flow.items()}
    changes = changes_of(then(**flow), now(**renamed), ResumeWishes(rename))
    assert {was: name for name, was in changes.was.items()} == {"lines": "lines", **rename}
    assert not changes.gone


def test_parts_of_an_operator_go_with_it() -> None:
    saved = then(**{"count": TALLY, "count.wait": TALLY, "count.other": TALLY})
    flow = now(**{"tally": TALLY, "tally.wait": TALLY, "count.other": TALLY})
    assert decide(flow, saved, count="tally").was["tally.wait"] == "count.wait"
    gone = decide(now(**{"count.other": TALLY}), saved, drop=["count"])
    assert gone.gone == ("count", "count.wait")


def test_all_that_is_lost_is_named_but_not_all_that_is_new() -> None:
    numbers = count()
    many = {f"new{next(numbers)}": TALLY for _ in range(9)}
    with pytest.raises(StateError) as told:
        decide(now(out="sink", **many))
    assert told.value.hint.count("--rename") == 5
