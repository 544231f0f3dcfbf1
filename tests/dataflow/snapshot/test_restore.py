"""A job that is interrupted at any epoch and goes on from images, in other ranges, loses no bit."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import Plan
from raystream.dataflow.snapshot import capture, next_wanted, settled
from raystream.local.job import LocalJob, totals
from raystream.state.images.chain import SMALL_BYTES, Chain, Size
from raystream.state.images.image import Image, decode, oldest_of
from raystream.state.images.partition import by_parts, fold, merge, recut
from raystream.state.tables.backend import WHOLE
from raystream.testing import Collect
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.shapes import SHAPES
from tests.dataflow.snapshot.job_at import Build, one, two
from tests.dataflow.test_l1 import counted, written
from tests.examples import examples


def planned(build: Build, sink: Collect, rng: random.Random) -> Plan:
    plan = make_plan(build(sink))
    for vertex in plan.ranges:
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


LARGE = SMALL_BYTES
"""Bytes that a row is said to have, so that rows are refreshed."""


class Backup:
    """What keepers would hold: per instance the images that are needed, in parts."""

    def __init__(self, job: LocalJob, table: str) -> None:
        self.job = job
        self.stored: dict[int, list[list[memoryview]]] = {}
        self.made: dict[int, Chain] = {}
        self.table = table
        """What tables are called; "" if images are to name no slots."""

    def take(self, epoch: int, rng: random.Random) -> None:
        """A cut: of some instances it is lost, as a later one then has an older base."""
        for machine in self.job.instances:
            have = self.stored.setdefault(id(machine), [])
            chain = self.made.setdefault(id(machine), Chain(0))
            wanted = next_wanted(machine, chain)
            captured = capture(machine, wanted, checkpoint=epoch, table=self.table)
            parts = list(captured.parts(rng.choice((1, 300, WHOLE))))
            chain.made(wanted, epoch)
            chain.answered(
                epoch, Size(LARGE * sum(map(len, parts)), sum(map(len, parts))), held=True
            )
            have.append([part.encode() for part in parts])
            headers = [decode(image[0]).header for image in have]
            have[:] = have[[h.checkpoint for h in headers].index(oldest_of(headers)) :]
            settled(machine, wanted.base)

    def chains(self, rng: random.Random) -> dict[str, list[list[Image]]]:
        """Per operator what is held: as it came, folded, merged, or cut into other ranges."""
        out = {}
        for v, machines in self.job.by_vertex.items():
            if self.job.plan.vertices[v].kind != "source":
                held = [
                    chain
                    for m in machines
                    for chain in by_parts(
                        [[decode(data) for data in parts] for parts in self.stored[id(m)]]
                    )
                ]
                for chain in held:
                    if rng.random() < 0.3:
                        chain[:] = [fold(chain[0], chain[1:])]
                if rng.random() < 0.3:
                    held = [[merge([fold(chain[0], chain[1:]) for chain in held])]]
                elif rng.random() < 0.5:
                    ranges = random_ranges(rng, self.job.plan.groups)
                    held = [chain for keys in ranges for chain in recut(held, keys)]
                rng.shuffle(held)
                out[self.job.plan.vertices[v].name] = held
        return out


def interrupted(build: Build, rng: random.Random, other: Build | None = None) -> tuple[Any, Any]:
    """Output and reports of a run that is cut off at random cuts and goes on elsewhere."""
    sink = Collect()
    job, epoch = LocalJob(planned(build, sink, rng)), 0
    for turn in range(rng.randrange(3)):
        backup = Backup(job, rng.choice(("", "one", "one")))
        while not job.ended and rng.random() < 0.9:
            for _ in range(rng.randrange(1, 6)):
                if not job.ended:
                    epoch += 1
                    job.turn()
            backup.take(epoch, rng)
        if not backup.stored:
            break
        after = planned(other or build if turn == 0 else build, sink, rng)
        job = LocalJob(after, resume=backup.chains(rng))
    job.rng = rng if rng.random() < 0.5 else None
    job.run()
    return written(sink), [counted(r) for r in totals(job.progress())]


def uninterrupted(build: Build) -> tuple[Any, Any]:
    sink = Collect()
    job = LocalJob(make_plan(build(sink)))
    job.run()
    return written(sink), [counted(r) for r in totals(job.progress())]


@pytest.mark.parametrize("name", SHAPES)
@examples(4)
@given(seed=st.integers(0, 2**16), data=st.integers(0, 2), seconds=st.sampled_from([4, 9, 30, 200]))
def test_going_on_from_images(name: str, seed: int, data: int, seconds: float) -> None:
    def build(sink: Collect) -> rs.Flow:
        return SHAPES[name].build(sink, seconds, data)

    assert interrupted(build, random.Random(seed)) == uninterrupted(build)


@examples(10)
@given(seed=st.integers(0, 2**16), backwards=st.booleans())
def test_compiled_and_interpreted_code_take_over_from_each_other(
    seed: int, backwards: bool
) -> None:
    first, second = (two, one) if backwards else (one, two)
    assert interrupted(first, random.Random(seed), second) == uninterrupted(one)
