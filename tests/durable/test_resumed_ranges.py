"""Saved checkpoints of real jobs are read in any ranges, and no bit is lost."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.planning.plans import make_plan
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import install
from raystream.dataflow.sources.epochs import my_splits
from raystream.durable.manifest import Saved
from raystream.durable.saves import Saves
from raystream.durable.store import Store
from raystream.local.job import LocalJob
from raystream.schema.types import KeyRange
from raystream.state.images.image import Image
from raystream.testing import Collect
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.shapes import SHAPES
from tests.dataflow.test_l1 import written
from tests.durable.memory import Memory
from tests.durable.saved_jobs import checkpoint, everything, saved_words
from tests.examples import examples


def resumed(saves: Saves, saved: Saved, plan: Plan) -> dict[str, list[list[Image]]]:
    """The chains of a saved cut, read for the ranges of another plan. Those of sources are put into
    instances that read nothing: where all splits are read on has to be known."""
    found: dict[str, list[list[Image]]] = {}
    for vertex, keys in plan.instances():
        chains = saves.images(saved, vertex.name, keys)
        if vertex.kind == "source":
            splits = install(SourceInstance(plan, vertex, keys), chains).splits
            mine = {name: group for group, name in my_splits(plan, vertex, keys)}
            assert {name: at[0] for name, at in splits.items()} == mine
        else:
            found.setdefault(vertex.name, []).extend(chains)
    return found


def planned(name: str, sink: Any, data: int, rng: random.Random) -> Plan:
    plan = make_plan(SHAPES[name].build(sink, 9, data), checkpoint_every=rng.choice([1, 2, 3]))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


@pytest.mark.parametrize("name", ["running batch", "tumbling", "sessions", "ledger", "diamond"])
@examples(6)
@given(st.integers(0, 2**16), st.integers(0, 2))
def test_going_on_with_other_ranges_loses_no_bit(name: str, seed: int, data: int) -> None:
    rng, saves = random.Random(seed), Saves(Memory(), name)
    whole = Collect()
    LocalJob(make_plan(SHAPES[name].build(whole, 9, data))).run()
    lives: list[tuple[int, Collect]] = []
    for life in range(rng.randrange(1, 4)):
        sink = Collect()
        number = saves.claim(f"run {life}")
        found = saves.newest()
        assert not found.refused
        plan = planned(name, sink, data, rng)
        images = {} if found.saved is None else resumed(saves, found.saved, plan)
        job, held = LocalJob(plan, resume=images), {}
        at = job.committed
        lives.append((at, sink))
        while not job.ended and rng.random() < 0.9:
            job.turn()
            at += 1
            if at % plan.checkpoint_every == 0 or job.ended:
                anew = rng.random() < 0.3
                checkpoint(job, saves, number, f"run {life}", at, held, anew=anew)
    job.run()
    kept: dict[Any, Any] = {}
    for begun, sink in lives:  # what the one before wrote after the cut does not count
        kept = {at: rows for at, rows in kept.items() if at[0] <= begun} | written(sink)
    assert kept == written(whole)


def test_who_has_ended_is_at_every_later_cut(store: Store) -> None:
    job = LocalJob(make_plan(SHAPES["tumbling"].build(Collect(), 9, 0)))
    job.run()
    end = max(m.position for m in job.instances)
    saves, held = Saves(store, "words"), {}
    saved = checkpoint(job, saves, saves.claim("run"), "run", end, held)
    later = replace(saved, checkpoint=end + 5)
    saves.commit(later)
    assert saves.newest().saved == later
    found = [i.header for i in everything(saves, later)]
    assert {h.checkpoint for h in found} == {end} and all(h.input_position.ended for h in found)


def test_a_chain_is_read_in_parts(store: Store) -> None:
    saves, saved = saved_words(store)
    vertex = next(v for v in saved.chains if saved.layout.shapes[v])
    bounds = [0, 1, 5, 6, saved.layout.groups]
    for lo, hi in pairwise(bounds):
        chains = saves.images(saved, vertex, KeyRange(lo, hi))
        ends = [lo, *(end for c in chains for end in c[0].header.keys), hi]
        assert all(a == b for a, b in zip(ends[::2], ends[1::2], strict=True))
        for chain in chains:
            assert len({i.header.keys for i in chain}) == 1
            assert [i.header.base for i in chain] == [0, *(i.header.checkpoint for i in chain[:-1])]
            assert chain[-1].header.checkpoint == saved.checkpoint
