"""An epoch that is one piece for one edge takes fewer steps, and changes no bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances import keyed
from raystream.dataflow.instances.outlets import Outlets
from raystream.dataflow.instances.sink import SinkInstance
from raystream.dataflow.order import assemble
from raystream.schema.blocks import Input
from raystream.testing import Collect
from tests.dataflow.instances.test_jumps import Ran, run
from tests.dataflow.shapes import SHAPES
from tests.examples import examples

Taken = set[str]


def ran(name: str, data: int, takes: Callable[[], bool]) -> tuple[Ran, Taken]:
    """What a run gives, and which short ways were taken. takes: whether one may be, now."""
    emit, write = Outlets.emit, SinkInstance._write_one
    taken = Taken()

    def emitted(self: Outlets, head: Any, *rest: Any) -> None:
        only, self._only = self._only, self._only if takes() else None
        if self._only is not None and head[0].rows.length:
            taken.add("emit")
        emit(self, head, *rest)
        self._only = only

    def written(self: SinkInstance, *epoch: Any) -> bool:
        wrote = takes() and write(self, *epoch)
        taken.update(["write"] if wrote else [])
        return wrote

    def put_together(feeds: Any, pieces: Any, *rest: Any) -> Input:
        # With an edge that nobody reads, `assemble` does not take its short way.
        return assemble(feeds, pieces if takes() else {**pieces, -1: []}, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outlets, "emit", emitted)
        patch.setattr(SinkInstance, "_write_one", written)
        patch.setattr(keyed, "assemble", put_together)
        sink = Collect()
        plan = make_plan(SHAPES[name].build(sink, 1, data), checkpoint_every=3)
        return run(plan, sink, jumps=False), taken


@pytest.mark.parametrize("name", SHAPES)
@examples(2)
@given(st.integers(0, 2**16), st.integers(0, 20))
def test_nobody_sees_which_way_an_epoch_took(name: str, seed: int, data: int) -> None:
    rng = random.Random(seed)
    long, none = ran(name, data, lambda: False)
    short, _ = ran(name, data, lambda: True)
    mixed, _ = ran(name, data, lambda: rng.random() < 0.5)
    assert not none
    assert short == long and mixed == long


def test_short_ways_are_taken() -> None:
    assert {way for name in SHAPES for way in ran(name, 1, lambda: True)[1]} == {"emit", "write"}
