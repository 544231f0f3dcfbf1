"""Timers that are set as they ring."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.compiled.operator import compile_operator
from raystream.errors import OperatorError
from raystream.state.tables.row_kernels import ALARM_BITS
from raystream.testing import Collect, run_local


class In(NamedTuple):
    time: int
    key: int


class Rang(NamedTuple):
    key: int
    time: int


class Alarm(rs.State):
    due: rs.Timer = rs.NEVER


@dataclass(frozen=True)
class Again:
    """Rings every `step` seconds, once it has begun."""

    step: int

    def process(self, r: In, row: Alarm) -> None:
        row.due = r.time

    def timer(self, key: int, time: int, row: Alarm) -> Iterator[Rang]:
        yield Rang(key, time)
        row.due = time + self.step


def rings(op: Any) -> list[Rang]:
    flow, sink = rs.Flow("ringing", key_groups=4), Collect()
    rows = [In(0, 1), In(9, 2)]
    epochs = rs.by_time(seconds=1)
    flow.source(rs.io.iterable(rows, In), epochs=epochs).through(op, name="again").to(sink)
    run_local(flow)
    return [r for r in sink.records() if r.key == 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_timer_may_be_set_to_any_later_time(compiled: bool) -> None:
    op = rs.operator(key="key", compiled=compiled, end_rings=4)(Again)
    assert [r.time for r in rings(op(step=1))] == [*range(10), 10, 11, 12, 13]
    assert [r.time for r in rings(op(step=3))] == [0, 3, 6, 9, 12, 15, 18, 21]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("step", [0, -5])
def test_one_that_would_never_stop_ringing_is_refused(compiled: bool, step: int) -> None:
    op = rs.operator(key="key", compiled=compiled)(Again)
    with pytest.raises(OperatorError, match=r"Again.timer set Alarm.due (.|\n)*never stop") as told:
        rings(op(step=step))
    assert "rs.NEVER" in str(told.value)


class Count(rs.State):
    due: rs.Timer = rs.NEVER
    n: int = 0


@dataclass(frozen=True)
class Quiet:
    """Rings every 3 seconds, three times or more often, and says so only when it is asked."""

    often: int

    def process(self, r: In, row: Count) -> Iterator[Rang]:
        yield Rang(r.key, row.n)
        if row.due == rs.NEVER:
            row.due = r.time + 3

    def timer(self, key: int, time: int, row: Count) -> None:
        row.n += 1
        if row.n % 5 == 4:
            rs.forget(row)
        elif row.n < self.often + key % 7:
            row.due = time + 3


def test_a_timer_that_says_nothing_rings_for_some_rows_after_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raystream.state.tables.timers.DUE_ROOM", 1 << ALARM_BITS)
    monkeypatch.setattr("raystream.state.tables.timers.DUE_MOST", 1 << ALARM_BITS)
    keys = range(5 << ALARM_BITS)
    asked = [In(time, key) for time in (0, 7, 20, 21) for key in keys if (key + time) % 3]
    found = []
    for compiled in (False, True):
        flow, sink = rs.Flow("quiet", key_groups=4), Collect()
        epochs = rs.by_time(seconds=1)
        op = rs.operator(key="key", compiled=compiled, end_rings=1)(Quiet)(often=3)
        flow.source(rs.io.iterable(asked, In), epochs=epochs).through(op, name="quiet").to(sink)
        report = run_local(flow)
        rows = {o.name: o.state_rows for o in report}["quiet"]
        found.append((sorted(sink.records()), rows))
    assert found[0] == found[1]
    assert {r.time for r in found[0][0]} == {0, 2, 3} and found[0][1]


@rs.operator(key="key", compiled=True)
class Uncounted:
    """Sets an alarm with each record."""

    def process(self, r: In, row: Alarm) -> None:
        row.due = r.time + 5

    def timer(self, key: int, time: int, row: Alarm) -> Iterator[Rang]:
        yield Rang(key, time)


def test_no_references_are_counted_for_a_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each reference that is counted is an atomic operation."""
    monkeypatch.setenv("RAYSTREAM_CACHE", str(tmp_path))  # code that was kept cannot be looked at
    flow = rs.Flow("uncounted")
    lines = flow.source(rs.io.iterable([In(0, 1)], In), epochs=rs.by_time(seconds=1))
    lines.through(Uncounted(), name="rings").to(Collect())
    (spec,) = [n.spec for n in flow.nodes if n.name == "rings"]
    operator = compile_operator(spec, groups=flow.key_groups)
    operator.warm()
    process, _ = operator.drivers
    ((form, text),) = process.inspect_llvm().items()
    name = re.escape(process.overloads[form].fndesc.mangled_name)
    (body,) = re.findall(rf"^define [^\n]*@{name}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
    assert "llvm.prefetch" in body, "it is the loop over records"
    assert "NRT_incref" not in body
