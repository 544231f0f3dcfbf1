"""Two saved states are compared, and an edited one is what a job goes on from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import raystream as rs
from raystream.durable.editing import difference_of
from raystream.durable.saves import Saves
from raystream.durable.states import SavedStates
from raystream.durable.store import open_store
from raystream.errors import OperatorError, OvertakenError, StateError
from raystream.testing import Collect
from tests.durable.test_durable_runs import LINES, Fragile
from tests.flows import Line

SECONDS = 5
BREAKS = 55


class Count(NamedTuple):
    text: str
    n: int


class Seen(rs.State):
    n: int = 0
    last: list[int] = rs.field(factory=list)
    by: dict[str, int] = rs.field(factory=dict)


class Total(rs.State):
    n: int = 0


@rs.operator(key="text")
def python(line: Line, seen: Seen) -> Iterator[Count]:
    seen.n += 1
    seen.last = [*seen.last, line.time][-2:]
    seen.by[str(line.time % 2)] = line.time
    yield Count(line.text, seen.n)


@rs.operator(key="text")
def structured(lines: rs.Batch[Line], rows: rs.Rows[Total]) -> rs.Batch[Count]:
    n = rows["n"][rows.index] + rows.nth + 1
    rows["n"] += rows.counts
    return rs.Batch(Count, {"text": lines["text"], "n": n})


def run(folder: Path, breaks: int = LINES, **options: Any) -> tuple[Collect, Collect]:
    flow, sinks = rs.Flow("trips"), (Collect(), Collect())
    epochs = rs.by_time(seconds=SECONDS, origin=0)
    lines = flow.source(Fragile(breaks=breaks), epochs=epochs, name="lines")
    for operator, sink, instances in ((python, sinks[0], 3), (structured, sinks[1], 2)):
        lines.through(operator, name=operator.__name__).to(sink, name=f"{instances}")
    flow.run(durable=folder, checkpoint_every=3, **options)
    return sinks


def saved(folder: Path) -> SavedStates:
    with pytest.raises(OperatorError, match="Broken"):
        run(folder, BREAKS)
    return rs.states(folder, "trips")


def expected(start: dict[str, int], states: SavedStates) -> dict[str, int]:
    """How often each text came by the end of the input, from these counts on."""
    counts = dict(start)
    for name in "abc":
        for t in range(SECONDS * states.checkpoint, LINES):
            text = f"{name}{t % 7} w{t % 5}"
            counts[text] = counts.get(text, 0) + 1
    return counts


def last(sink: Collect) -> dict[str, int]:
    return {count.text: count.n for count in sink.records()}


def counts_of(table: Any) -> dict[str, int]:
    return dict(zip(table["text"].to_pylist(), table["n"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", ["python", "structured"])
def test_a_job_goes_on_from_what_was_edited(tmp_path: Path, name: str) -> None:
    states = saved(tmp_path)
    table = states[name]
    first, second = "a1 w0", "b2 w1"  # which come again
    assert {first, second} <= {*table["text"].to_pylist()}
    n = pc.if_else(pc.equal(table["text"], first), pc.add(table["n"], 1000), table["n"])
    table = table.set_column(table.column_names.index("n"), "n", n)
    table = table.filter(pc.not_equal(table["text"], second))
    new = {"text": ["a1 w1 x"], "n": [7]}
    if name == "structured":
        table = pa.concat_tables([table, pa.table(new)])
    edited = states.edited({name: table.select(table.column_names[::-1])})
    assert (edited.run, edited.checkpoint) == (states.run + 1, states.checkpoint)
    assert edited[name].sort_by("text") == table.sort_by("text")
    other = {"python": "structured", "structured": "python"}[name]
    assert edited[other] == states[other]

    starts = {name: counts_of(table), other: counts_of(states[other])}
    found = dict(zip(("python", "structured"), map(last, run(tmp_path, resume=True)), strict=True))
    came = {f"{t % 7} w{t % 5}" for t in range(SECONDS * states.checkpoint, LINES)}
    for each, start in starts.items():
        wanted = expected(start, states)
        assert found[each] == {t: n for t, n in wanted.items() if t[1:] in came}
    assert found[name][first] > 1000


def test_the_difference_of_two_states_names_each_row(tmp_path: Path) -> None:
    states = saved(tmp_path)
    assert states.kept[0] == (states.run, states.checkpoint)
    before = rs.states(tmp_path, "trips", checkpoint=states.kept[1][1])
    assert before.checkpoint == states.checkpoint - 3
    for name in states:
        was, now = counts_of(before[name]), counts_of(states[name])
        differs = states.diff(before, name)
        assert differs.column_names[:2] == ["text", "change"]
        found = {r["text"]: (r["change"], r["n_before"], r["n"]) for r in differs.to_pylist()}
        assert found == {
            text: ("changed" if text in was else "new", was.get(text), n)
            for text, n in now.items()
            if was.get(text) != n
        }
        assert "changed" in {change for change, _, _ in found.values()}
        back = before.diff(states, name).to_pylist()
        assert {r["text"] for r in back if r["change"] == "gone"} == now.keys() - was.keys()
        assert states.diff(states, name).num_rows == 0
    with pytest.raises(StateError, match="no state of 'other'"):
        states.diff(before, "other")
    with pytest.raises(StateError, match="no whole checkpoint 1 of trips") as caught:
        rs.states(tmp_path, "trips", checkpoint=1)
    assert str(states.checkpoint) in caught.value.hint


def test_a_nan_does_not_differ_from_a_nan() -> None:
    before, after = (pa.table({"text": ["a", "b"], "x": [float("nan"), x]}) for x in (1.0, 2.0))
    assert difference_of(before, after, ["text"]).to_pylist() == [
        {"text": "b", "change": "changed", "x": 2.0, "x_before": 1.0}
    ]


def test_what_does_not_fit_is_refused_and_nothing_is_saved(tmp_path: Path) -> None:
    states = saved(tmp_path)
    table, python_rows = states["structured"], states["python"]
    text = table.set_column(1, "n", pa.array(["many"] * table.num_rows))
    lacking = table.set_column(1, "n", pa.array([None] * table.num_rows, pa.int64()))
    nobody = table.set_column(0, "text", pa.array([None] * table.num_rows, pa.string()))
    objects = python_rows.to_pylist()
    objects[0]["by"] = {"0": 1}
    dicts = pa.Table.from_pylist(objects, schema=python_rows.schema)
    for tables, why in [
        ({"other": table}, "no state of 'other'"),
        ({"structured": table.drop_columns(["n"])}, "the edited rows of structured have the col"),
        ({"structured": table.rename_columns(["text", "m"])}, "have the columns text, m"),
        ({"structured": [1]}, "have the columns of no table"),
        ({"structured": text}, "structured.n is int64, and the edited column is string"),
        ({"structured": lacking}, "structured.n has no value in"),
        ({"structured": nobody}, "structured.text has no value in"),
        ({"structured": pa.concat_tables([table, table.slice(0, 1)])}, "is there twice"),
        ({"python": dicts}, "python.by of key"),
    ]:
        with pytest.raises(StateError, match=why) as caught:
            states.edited(tables)  # type: ignore[arg-type]
        assert caught.value.where is not None and caught.value.where.file == __file__
    assert rs.states(tmp_path, "trips").kept == states.kept
    states.edited({"python": python_rows})
    with pytest.raises(StateError, match="is not the newest checkpoint any more"):
        states.edited({})


def test_lists_are_edited_and_other_objects_stay(tmp_path: Path) -> None:
    states = saved(tmp_path)
    rows = states["python"].to_pylist()
    rows[0]["last"] = [1, 2, 3]
    edited = states.edited({"python": pa.Table.from_pylist(rows, schema=states["python"].schema)})
    assert edited["python"].to_pylist() == rows


def test_a_run_that_is_at_work_is_over(tmp_path: Path) -> None:
    states = saved(tmp_path)
    states.edited({})
    with pytest.raises(OvertakenError, match="run 2 has begun, so run 1 is over"):
        Saves(open_store(tmp_path), "trips").commit(states._saved)


def test_the_end_of_a_job_has_nothing_to_be_edited(tmp_path: Path) -> None:
    run(tmp_path)
    states = rs.states(tmp_path, "trips")
    with pytest.raises(StateError, match="the input of structured had ended"):
        states.edited({"structured": states["structured"]})
