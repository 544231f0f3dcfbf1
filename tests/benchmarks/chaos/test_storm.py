"""What random moves are asked for, and what is told of them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos import storm
from benchmarks.chaos.storm import KINDS, MOST, OTHER, Ask, Done, Storm, choose, table, tally

VERTICES = ("lines", "count", "counts")
SINKS = ("counts",)
counts = st.fixed_dictionaries({v: st.integers(1, MOST) for v in VERTICES})


@given(st.sampled_from(KINDS), counts, st.integers(2, MOST), st.integers(0, 99))
def test_what_is_asked_for_can_be_had(
    kind: str, counts: dict[str, int], most: int, seed: int
) -> None:
    names = [f"{v}/{i}" for v, n in counts.items() for i in range(n)]
    others = ["controller", "keeper/0"]
    ask = choose(kind, counts, names + others, SINKS, random.Random(seed), most)
    what, mode = kind.split(", ")
    if ask is None:
        full = range(most, MOST + 1) if what == "out" else (1,)
        assert what != "move" and {counts["lines"], counts["count"]} <= {*full}
        return
    assert ask.kind == kind and ask.mode == mode
    if what == "move":
        assert ask.instance in names and ask.operator == ask.instance.partition("/")[0]
    else:
        assert ask.operator not in SINKS and 1 <= ask.instances <= max(
            most, counts[ask.operator] - 1
        )
        assert ask.instances - counts[ask.operator] == (1 if what == "out" else -1)


def test_nothing_is_asked_for_where_nobody_lives() -> None:
    for kind in KINDS:
        assert choose(kind, {}, ["controller"], (), random.Random(1)) is None


def test_every_kind_comes_before_any_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm, "answer_to", lambda ask, chance: ("refused", "not now"))
    said: list[str] = []
    moving = Storm(random.Random(3), SINKS, every=0.0, say=said.append)
    operators = {v: SimpleNamespace(instances=2) for v in VERTICES}
    sample: Any = SimpleNamespace(t=1.0, operators=operators, processes={"count/0": 1})
    moving(sample)
    assert not moving._asking  # the job has hardly begun
    sample.t = 60.0
    for _ in range(2 * len(KINDS)):
        moving(sample)
    moving.close()
    kinds = [ask.kind for ask, _ in moving.asked]
    assert sorted(kinds) == sorted(2 * KINDS)
    assert len(said) == len(kinds) and all("refused (not now)" in text for text in said)


def test_a_kind_that_is_not_possible_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm, "answer_to", lambda ask, chance: ("refused", "not now"))
    moving = Storm(random.Random(3), SINKS, every=0.0, say=lambda text: None)
    operators = {v: SimpleNamespace(instances=1) for v in VERTICES}  # nobody can be fewer
    sample: Any = SimpleNamespace(t=60.0, operators=operators, processes={"count/0": 1})
    for _ in range(3 * len(KINDS)):
        moving(sample)
    operators["count"].instances = 2
    moving(sample)
    moving.close()
    kinds = [ask.kind for ask, _ in moving.asked]
    assert len(kinds) == 3 * len(KINDS) + 1
    assert [k.startswith("in, ") for k in kinds] == [False] * (len(kinds) - 1) + [True]


def test_the_table_tells_what_became_of_moves() -> None:
    out, move = Ask(KINDS[0], "count", 3), Ask(KINDS[2], "count", instance="count/1")
    rows = {
        r.kind: r
        for r in tally(
            [(out, "taken up"), (out, "refused"), (move, "unanswered")],
            [Done(KINDS[0], "", 2.0), Done(KINDS[2], "nobody was left", 9.0), Done("x", "", 1.0)],
        )
    }
    assert rows[KINDS[0]] == (KINDS[0], 2, {"taken up": 1, "refused": 1}, 1, 0, [2.0])
    assert rows[KINDS[2]] == (KINDS[2], 1, {"unanswered": 1}, 0, 1, [])
    assert rows[OTHER].made == 1
    assert [*tally([], [])] == [r for r in tally([], []) if r.kind != OTHER]
    shown = table(rows.values())
    assert [next(iter(shown.columns[i].cells)) for i in (1, 5, 7)] == ["2", "1", "2.0"]
