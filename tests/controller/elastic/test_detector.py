"""The detector: reports out of counts that grow, and whom it leaves alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.elastic.detector import COOLDOWN_SECONDS, Detector, bounds_in, parents_of
from raystream.controller.elastic.policy import CpuThreshold, Load, Report, Target, Unable
from raystream.dataflow.progress import Progress
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from tests.controller.elastic.plant import Plant, words
from tests.dataflow.random_ranges import random_ranges

ALL = KeyRange(0, 256)
EVEN = np.full(256, 1 / 256)


class Watching:
    """A policy that remembers what it was shown, and says what it is told to."""

    interval = 5.0

    def __init__(self, *says: Target | Unable) -> None:
        self.says: Sequence[Target | Unable] = says
        self.seen: list[dict[str, Load]] = []

    def decide(self, loads: Sequence[Load]) -> Iterable[Target | Unable]:
        self.seen.append({x.operator: x for x in loads})
        return self.says


def test_a_report_is_the_difference_over_a_whole_interval() -> None:
    policy = Watching()
    demand = {"count": 0.5 * EVEN}
    plant = Plant(policy, demand)
    plant.run(11)
    (reports,) = policy.seen[-1]["count"].reports
    assert [r.seconds for r in reports] == [5.0, 5.0]
    assert all(r.cpu == r.busy == pytest.approx(0.5) and r.blocked == 0 for r in reports)
    assert all(r.rate_in == pytest.approx(5_000, rel=0.01) for r in reports)
    assert policy.seen[-1]["count"].by_group.sum() > 20_000
    assert plant.detector.reports()["count/2"] == reports[-1]
    assert len(policy.seen) == 2  # it is asked when there is something new


def test_old_load_counts_for_less() -> None:
    first, then = np.zeros(256), np.zeros(256)
    first[:128], then[128:] = 0.5 / 128, 0.5 / 128
    policy = Watching()
    plant = Plant(policy, {"count": first})
    plant.run(6)
    plant.demand["count"] = then
    plant.run(10)
    by_group = policy.seen[-1]["count"].by_group
    assert by_group[128:].sum() > 3 * by_group[:128].sum() > 0


def test_nothing_from_before_a_change_is_looked_at_and_not_at_once_after_it() -> None:
    policy = Watching()
    plant = Plant(policy, {"count": EVEN}, delay=2.0)
    plant.run(12)
    halves = (KeyRange(0, 100), KeyRange(100, 256))
    policy.says = [Target("count", halves, "a test says so")]
    (found,) = plant.run(5)
    assert found.targets == tuple(policy.says)
    policy.says = []
    asked = plant.now
    plant.run(30)
    seen = [
        load["count"] for load in policy.seen if "count" in load and len(load["count"].ranges) > 1
    ]
    assert plant.ranges("count") == list(halves)
    assert seen and seen[0].ranges == halves
    assert {r.instance for r in seen[-1].reports[0]} == {"count/5"}
    assert all(
        r.t - r.seconds >= asked + 2.0 + COOLDOWN_SECONDS - 5.0
        for load in seen
        for mine in load.reports
        for r in mine
    )
    assert all("chain" in load for load in policy.seen)  # others are looked at meanwhile


def test_an_instance_that_was_replaced_begins_anew() -> None:
    policy = Watching()
    plant = Plant(policy, {"count": 0.9 * EVEN})
    plant.run(10.5)
    plant.works["count"] = [plant._work("count", ALL)]  # it died, and another took its place
    plant.run(COOLDOWN_SECONDS)
    assert all("count" not in load for load in policy.seen[2:])
    plant.run(6)
    assert [len(r) for r in policy.seen[-1]["count"].reports] == [1]


def test_what_was_asked_for_is_not_asked_for_again_at_once() -> None:
    """Also if whoever was asked did nothing."""
    plant = Plant(CpuThreshold(), {"count": 0.9 * EVEN}, delay=1e9)
    plant._due = type("Nobody", (list,), {"__iadd__": lambda self, _: self})()
    plant.run(100)
    times = [t for t, f in plant.found if f.targets]
    assert len(times) >= 3
    assert all(b - a >= COOLDOWN_SECONDS + 10 for a, b in pairwise(times))


def test_what_cannot_be_done_is_said_once() -> None:
    hot = np.zeros(256)
    hot[7] = 0.9
    plant = Plant(CpuThreshold(), {"count": hot})
    (found,) = plant.run(300)
    assert found.targets == () and "key group 7 has 100% of its load" in found.notes[0]
    plant.demand["count"] = hot + np.where(np.arange(256) < 128, 0, 3 / 128)
    found = plant.run(900)
    assert len(plant.ranges("count")) > 3  # others are cut, which is no news of this one
    whom = [note.split()[0] for f in found for note in f.notes]
    assert len(whom) == len(set(whom))


def test_sources_have_as_many_instances_as_splits_and_sinks_stay_as_they_are() -> None:
    policy = Watching()
    plant = Plant(policy, {}, bounds={"count": (2, 5)})
    plant.run(11)
    bounds = {name: (load.least, load.most) for name, load in policy.seen[-1].items()}
    assert bounds == {"lines": (1, 3), "count": (2, 5), "chain": (1, 256), "collect": (1, 1)}
    assert policy.seen[-1]["chain"].producers == ("count",)


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"cuont": (1, 2)}, "no operator 'cuont'.*There are lines, count, chain, collect"),
        ({"count": (2, 1)}, "count from 2 to 1; the least is greater than the most"),
        ({"count": (0, 1)}, "count from 0 to 1"),
        ({"count": (1, 257)}, "from 1 to 256"),
        ({"collect": (1, 2)}, "collect is a sink"),
        ({"split": (1, 2)}, "it runs inside 'lines'"),
    ],
)
def test_bounds_that_no_operator_can_have_are_refused(
    bounds: dict[str, tuple[int, int]], why: str
) -> None:
    with pytest.raises(ConfigError, match="(?s)" + why):
        bounds_in(words(), bounds)


def test_a_policy_of_a_users_own_is_kept_within_bounds() -> None:
    quarters = tuple(KeyRange(64 * i, 64 * (i + 1)) for i in range(4))
    plant = Plant(
        Watching(Target("count", quarters, "so")), {"count": EVEN}, bounds={"count": (1, 2)}
    )
    plant.run(30)
    assert plant.ranges("count") == [KeyRange(0, 128), KeyRange(128, 256)]


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (
            [Target("count", (KeyRange(0, 9),), "so")],
            r"wants count as \[0, 9\): not every key group",
        ),
        ([Target("cuont", (ALL,), "so")], "speaks of 'cuont', which is no operator"),
        (None, "raised TypeError"),
        ([("count", (ALL,))], "neither a Target nor an Unable: 'tuple' object"),
        ([Target("count", (KeyRange(0, 9.5),), "so")], "neither a Target nor an Unable: 'float'"),  # type: ignore[arg-type]
        ([Unable("count", 7, "so")], "neither a Target nor an Unable: 'int'"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_is_wrong_is_told_once_and_ends_nothing(says, why: str) -> None:
    policy = Watching()
    policy.says = says
    (found,) = Plant(policy, {"count": EVEN}).run(60)
    (note,) = found.notes
    assert note.startswith("Watching ") and note.endswith("the job goes on as it is")
    assert re.search(why, note)


def test_ranges_that_a_policy_found_with_numpy_can_be_sent() -> None:
    cuts = np.array([0, 100, 256])
    ranges = tuple(KeyRange(lo, hi) for lo, hi in pairwise(cuts))
    plant = Plant(Watching(Target("count", ranges, "so")), {"count": EVEN})
    plant.run(30)
    assert plant.ranges("count") == [KeyRange(0, 100), KeyRange(100, 256)]
    assert all(type(at) is int for keys in plant.ranges("count") for at in keys)


def test_who_has_ended_is_not_measured() -> None:
    policy = Watching()
    detector = Detector(words(), policy)
    for t in (0.0, 5.0, 10.0):
        said = Progress(
            vertex="count",
            instance=0,
            position=1,
            ended=t > 5,
            cpu=t,
            name="a",
            seconds=t,
        )
        detector.heard(said, ALL, t)
    assert detector.reports() == {}


def measured(keys: KeyRange) -> Report:
    return Report(
        instance="count/0",
        keys=keys,
        t=5.0,
        seconds=5.0,
        cpu=0.5,
        busy=0.5,
        blocked=0.0,
        rate_in=1000.0,
        rate_out=1000.0,
    )


@given(st.integers(0, 2**16))
def test_a_range_remembers_the_one_that_it_was_cut_from(seed: int) -> None:
    rng = random.Random(seed)
    old, new = random_ranges(rng, 64), random_ranges(rng, 64)
    reports = tuple(tuple(measured(r) for _ in range(rng.randrange(3))) for r in old)
    known = tuple(rng.choice((None, measured(r))) for r in old)
    load = Load(
        operator="count",
        producers=(),
        ranges=tuple(old),
        reports=reports,
        by_group=np.ones(64),
        least=1,
        most=64,
        parents=known,
    )
    found = parents_of(new, load)
    for keys in new:
        expected = None
        for wide, mine, parent in zip(old, reports, known, strict=True):
            if keys == wide:
                expected = parent
            elif wide.lo <= keys.lo and keys.hi <= wide.hi and mine:
                expected = mine[-1]
        assert found.get(keys) is expected
