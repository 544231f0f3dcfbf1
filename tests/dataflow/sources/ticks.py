"""Sources of ticks, whose splits hypothesis draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import Plan
from raystream.testing import Collect
from tests.flows import Rows


class Tick(NamedTuple):
    time: int
    id: int


@rs.operator(key="id")
def echo(tick: Tick) -> Iterator[Tick]:
    yield tick


def plan_of(parts: tuple[tuple[Any, ...], ...], epochs: Any, *, batch: int = 3) -> Plan:
    flow = rs.Flow("ticks", key_groups=8)
    flow.source(Rows(Tick, parts, batch), epochs=epochs, name="ticks").through(echo).to(Collect())
    return make_plan(flow)


times = st.lists(st.integers(-30, 30), min_size=1, max_size=12)
splits = st.lists(times, min_size=1, max_size=5)


def numbered(parts: list[list[int]]) -> tuple[tuple[Tick, ...], ...]:
    ids = iter(range(1000))
    return tuple(tuple(Tick(t, next(ids)) for t in part) for part in parts)
