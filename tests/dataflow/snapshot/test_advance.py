"""An instance is advanced by what has changed in another since the image that it began with."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.dataflow.snapshot import advance, capture, install
from raystream.errors import StateError
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.partition import partition, recut
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.snapshot.job_at import Build, fresh, job_at, one, two
from tests.examples import examples


@pytest.mark.parametrize("build", [one, two], ids=["interpreted", "compiled"])
@examples(12)
@given(epochs=st.tuples(st.integers(0, 8), st.integers(1, 8)), seed=st.integers(0, 2**16))
def test_who_is_brought_on_by_its_owner_knows_what_that_knows(
    build: Build, epochs: tuple[int, int], seed: int
) -> None:
    """What was held at the first cut, and what has changed until the second, of any part."""
    job = job_at(build, epochs[0])
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    before = capture(owner).image()
    for _ in range(epochs[1]):
        job.turn()
    delta = capture(owner, CheckpointRequest(epochs[0])).image()
    (keys, *_) = random_ranges(random.Random(seed), job.plan.groups)
    taker = fresh(build, owner.vertex.name)
    taker.keys = keys
    if epochs[0]:
        install(taker, recut([[before]], keys))
    advance(taker, partition(delta, [keys])[0])
    expected, found = partition(capture(owner).image(), [keys])[0], capture(taker).image()
    assert found.rows == expected.rows
    assert found.header == expected.header
    assert {log.next for log in taker.outlets.logs.values()} == {sum(epochs) + 1}


def test_a_delta_on_something_else_is_refused() -> None:
    job = job_at(one, 5)
    owner = next(m for m in job.instances if m.vertex.kind == "operator")
    taker = fresh(one, owner.vertex.name)
    for since in (3, 4):
        with pytest.raises(StateError, match=r"does not apply to .* at 0"):
            advance(taker, capture(owner, CheckpointRequest(since)).image())
    advance(taker, capture(owner).image())
    with pytest.raises(StateError, match=r"does not apply to .* at 5"):
        advance(taker, capture(owner).image())
