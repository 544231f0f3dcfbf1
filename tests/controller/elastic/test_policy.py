"""What policies make of reports, and where they come to rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.controller.elastic.detector import interval_of
from raystream.controller.elastic.policy import (
    CpuThreshold,
    Load,
    Policy,
    RateBased,
    Report,
    Target,
    Unable,
    costs_by_group,
)
from raystream.controller.elastic.range_cuts import even, heaviest
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange
from raystream.state.keys import tiles
from tests.controller.elastic.plant import Plant, words
from tests.examples import examples

GROUPS = 64


def report(cpu: float, i: int = 0, **changes: float) -> Report:
    """What an instance measured that used so much of its CPU."""
    measured = Report(
        instance=f"count/{i}",
        keys=KeyRange(0, GROUPS),
        t=5.0,
        seconds=5.0,
        cpu=cpu,
        busy=cpu,
        blocked=0.0,
        rate_in=1000.0,
        rate_out=1000.0,
    )
    return replace(measured, **changes)  # type: ignore[arg-type]


def load(
    cpu: Sequence[Sequence[float]],
    by_group: np.ndarray | None = None,
    *,
    least: int = 1,
    most: int = GROUPS,
    operator: str = "count",
    producers: tuple[str, ...] = ("lines",),
) -> Load:
    """An operator of which each instance measured these, its ranges of equal length."""
    by_group = np.ones(GROUPS) if by_group is None else by_group
    ranges = even(KeyRange(0, GROUPS), np.ones(GROUPS), len(cpu))
    reports = tuple(tuple(report(c, i) for c in mine) for i, mine in enumerate(cpu))
    return Load(
        operator=operator,
        producers=producers,
        ranges=ranges,
        reports=reports,
        by_group=by_group,
        least=least,
        most=most,
    )


def skewed(*shares: float) -> np.ndarray:
    """Load by key group: these, the others one hundredth each."""
    out = np.full(GROUPS, 0.01)
    out[: len(shares)] = shares
    return out


# ---------------------------------------------------------------- the threshold


def test_two_reports_in_a_row_above_the_threshold_mark_a_bottleneck() -> None:
    policy = CpuThreshold()
    for calm in ([0.9], [0.9, 0.6], [0.6, 0.9], [0.7, 0.7]):
        assert policy.decide([load([calm])]) == []
    (target,) = policy.decide([load([[0.3, 0.84, 0.91]])])
    assert isinstance(target, Target)
    assert target.ranges == (KeyRange(0, 32), KeyRange(32, 64))
    assert target.because == (
        "count/0 used 84% and 91% of its CPU in 2 reports, above 70%, cut where its load halves:"
        " [0, 32) [32, 64)"
    )


def test_a_hot_range_is_cut_where_its_load_halves() -> None:
    (target,) = CpuThreshold().decide([load([[0.9, 0.9]], skewed(5, 5, 5, 5))])
    assert isinstance(target, Target) and target.ranges == (KeyRange(0, 2), KeyRange(2, 64))


def test_all_bottlenecks_are_split_at_once_the_worst_first_where_room_is_short() -> None:
    three = [[0.8, 0.8], [0.9, 0.9], [0.1, 0.1]]
    found = CpuThreshold().decide([load(three), load([[0.75, 0.72]], operator="chain")])
    assert [(f.operator, len(f.ranges)) for f in found if isinstance(f, Target)] == [
        ("count", 5),
        ("chain", 2),
    ]
    unable, target = CpuThreshold().decide([load(three, most=4)])
    assert isinstance(target, Target) and len(target.ranges) == 4
    assert "count/1" in target.because and "count/0" not in target.because
    assert isinstance(unable, Unable) and "no more than 4 instances" in unable.because


def test_who_has_more_instances_than_allowed_does_not_lose_some_for_being_hot() -> None:
    """A job may begin so, or `raystream scale` have made it so."""
    for policy in (CpuThreshold(), RateBased()):
        plant = Plant(policy, {"count": np.full(256, 7 / 256)}, bounds={"count": (1, 4)})
        eighths = even(KeyRange(0, 256), np.ones(256), 8)
        plant.works["count"] = [plant._work("count", keys) for keys in eighths]
        (found,) = plant.run(60)
        assert not found.targets and plant.ranges("count") == list(eighths)
        assert all("count may have no more than 4 instances" in note for note in found.notes)


def test_one_hot_key_group_cannot_be_split() -> None:
    for hot in (skewed(50), np.ones(GROUPS)):
        one = replace(load([[0.9, 0.9]], hot), ranges=(KeyRange(0, 1 if hot[0] == 1 else GROUPS),))
        (found,) = CpuThreshold().decide([one])
        assert isinstance(found, Unable)
        assert "key group 0 has" in found.because and "cannot be cut" in found.because


def test_neighbours_that_have_little_to_do_are_merged_after_a_lull() -> None:
    policy = CpuThreshold(lull=3)
    quiet = [[0.1] * 3] * 2 + [[0.3] * 3] * 2
    (target,) = policy.decide([load(quiet)])
    assert isinstance(target, Target)
    assert target.ranges == (KeyRange(0, 32), KeyRange(32, 48), KeyRange(48, 64))
    assert "count/0 count/1 together used at most 20%" in target.because
    assert policy.decide([load([q[:2] for q in quiet])]) == []
    assert policy.decide([load([[0.1, 0.3, 0.1]] * 2)]) == []  # 0.6 at one moment
    assert policy.decide([load(quiet, least=4)]) == []


def test_nobody_is_merged_while_a_bottleneck_is_split() -> None:
    quiet = load([[0.1] * 6] * 4, operator="chain")
    found = CpuThreshold().decide([load([[0.9] * 6]), quiet])
    assert [f.operator for f in found] == ["count"]
    found = CpuThreshold().decide([load([[0.9] * 6], skewed(99)), quiet])
    assert [type(f) for f in found] == [Unable, Target]  # what cannot be split holds up nobody


@pytest.mark.parametrize(
    ("parent", "now", "cut"),
    [
        ((1.0, 1000), (0.75, 500), True),  # half of the records would leave it 0.62
        ((1.0, 1000), (0.9, 500), False),  # ... 0.85, more than nine tenths of what it uses
        ((0.8, 1000), (0.9, 500), False),  # others have come since, and it exchanges with each
        ((0.8, 1000), (0.9, 800), True),  # there is more to do than there was
        ((1.0, 0), (0.75, 0), True),  # timers, say: by half of the rows
        ((1.0, 0), (0.9, 0), False),
        ((0.8, 1000), (0.9, 0), False),
        ((0.8, 0), (0.9, 10), True),
        (None, (0.9, 500), True),
    ],
)
def test_a_range_is_cut_again_if_its_last_cut_was_worth_it(
    parent: tuple[float, float] | None, now: tuple[float, float], cut: bool
) -> None:
    def measured(cpu: float, rate: float) -> Report:
        return report(cpu, rate_in=rate, rate_out=rate)

    two = load([[now[0]] * 2, [0.1] * 2])
    two = replace(
        two,
        reports=((measured(*now),) * 2, two.reports[1]),
        parents=(parent and measured(*parent), None),
    )
    (found,) = CpuThreshold().decide([two])
    assert isinstance(found, Target if cut else Unable)
    assert cut or "with half of its records it would still use" in found.because


def test_cuts_do_not_follow_cuts_where_instances_cost_more_than_records() -> None:
    even_load = np.full(256, 0.2 / 256)
    plant = Plant(CpuThreshold(), {"count": even_load}, overhead=0.72, poll=1.0)
    plant.run(300)
    sizes = {name: len(plant.ranges(name)) for name in plant.works}
    assert set(sizes.values()) <= {1, 2}  # one cut shows that it is of no use
    assert sizes["count"] == sizes["chain"] == 2  # this one has no records at all
    notes = [n for _, f in plant.found for n in f.notes if n.startswith("count/")]
    assert len(notes) == 2  # of each half, once
    assert all("it would still use 94% of that, as its last cut shows" in n for n in notes)
    plant.demand["count"] = 1.7 * even_load
    plant.run(300)
    assert len(plant.ranges("count")) == 4


# ---------------------------------------------------------------- rates


def source(blocked: float, **changes: float) -> Load:
    """A source of one instance."""
    own = load([[0.3] * 6], operator="lines", producers=())
    reports = tuple(replace(r, blocked=blocked, **changes) for r in own.reports[0])
    return replace(own, reports=(reports,))


def test_all_operators_are_sized_in_one_step() -> None:
    """Blocked for 3/4 of its time, the source would send four times as much."""
    chain = load([[0.5] * 2], operator="chain", producers=("count",))
    found = RateBased(use=0.5).decide([source(0.75), load([[0.9] * 2]), chain])
    sizes = {f.operator: len(f.ranges) for f in found if isinstance(f, Target)}
    assert sizes == {"lines": 3, "count": 8, "chain": 4}  # 1.2, 3.6 and 2 at 0.5 each
    (why,) = (f.because for f in found if f.operator == "count")
    assert why == (
        "4,000 records/s are to be expected and one instance can take 1,111/s: 8 of them, busy for"
        " at most 50% of the time"
    )


def test_an_operator_of_two_inputs_grows_by_what_both_send() -> None:
    calm = replace(source(0.0), operator="calm")
    both = load([[0.6] * 2], producers=("lines", "calm"))
    sizes = {
        f.operator: len(f.ranges)
        for f in RateBased(use=0.7).decide([source(0.5), calm, both])
        if isinstance(f, Target)
    }
    assert sizes == {"count": 2}  # 0.6 grows to 0.9: half of what comes in doubles


def test_the_heavy_get_small_ranges_and_one_hot_key_group_is_told() -> None:
    found = RateBased().decide([source(0.0), load([[0.9] * 2], skewed(5, 5, 5, 5))])
    (target,) = (f for f in found if isinstance(f, Target))
    assert target.ranges == (KeyRange(0, 2), KeyRange(2, 64))
    (unable,) = RateBased().decide([source(0.0), load([[0.9] * 2], skewed(99))])
    assert isinstance(unable, Unable) and "key group 0 has 99% of its load" in unable.because
    (unable,) = RateBased().decide([source(0.0), load([[0.9] * 2], most=1)])
    assert isinstance(unable, Unable) and "no more than 1 instance" in unable.because


def test_without_enough_reports_nothing_is_sized() -> None:
    assert RateBased().decide([source(0.0), load([[0.9], [0.9] * 2])]) == []


# ---------------------------------------------------------------- both, in a closed loop


class Demand(NamedTuple):
    """Cores by key group, so many in all: some skew, no group too hot for one instance."""

    seed: int
    shape: float
    cores: float

    def by_group(self) -> np.ndarray:
        own = np.random.default_rng(self.seed).pareto(self.shape, GROUPS)
        return np.minimum(own * self.cores / own.sum(), 0.3)


demands = st.builds(
    Demand, st.integers(0, 1 << 32), st.sampled_from([1.5, 3.0, 50.0]), st.floats(0.01, 10.0)
)
policies = st.sampled_from([CpuThreshold(), CpuThreshold(0.5, low=0.4, lull=2), RateBased()])


@examples(6)
@given(policies, demands, demands, st.integers(1, 3), st.integers(4, 60))
def test_targets_tile_bounds_are_kept_and_a_constant_load_comes_to_rest(
    policy: Policy, count: Demand, chain: Demand, least: int, most: int
) -> None:
    cores = {"count": count.by_group(), "chain": chain.by_group()}
    bounds = {"count": (least, most)}
    plant = Plant(policy, cores, bounds=bounds, plan=words(GROUPS), poll=1.25)
    for factors in ((1.0, 1.0), (0.3, 2.0)):
        plant.demand = {n: f * cores[n] for n, f in zip(cores, factors, strict=True)}
        for found in plant.run(400):
            for target in found.targets:
                assert tiles(target.ranges, GROUPS) and target.because
                if target.operator == "count":
                    assert least <= len(target.ranges) <= most
        assert plant.run(150) == []  # no flapping, nothing said twice
        for name, own in plant.demand.items():
            if own.max() <= 0.6 and len(plant.ranges("count")) < most:
                assert max(plant.cpu(name)) <= 0.70 + 1e-6


@pytest.mark.parametrize("policy", [CpuThreshold(), RateBased()], ids=["threshold", "rates"])
def test_what_grows_with_the_load_shrinks_with_it(policy: Policy) -> None:
    even_load = np.full(256, 1 / 256)
    plant = Plant(policy, {"count": 0.2 * even_load}, overhead=0.02)
    sizes = []
    for cores in (0.2, 1, 4, 8, 4, 1, 0.2):
        plant.demand["count"] = cores * even_load
        plant.run(400)
        sizes.append(len(plant.ranges("count")))
    assert sizes == sorted(sizes[:4]) + sorted(sizes[4:], reverse=True)
    assert sizes[0] == sizes[-1] == 1 and 12 <= sizes[3] <= 20


@pytest.mark.parametrize("delay", [1.0, 60.0])
@pytest.mark.parametrize("policy", [CpuThreshold(), RateBased()], ids=["threshold", "rates"])
def test_who_waits_for_a_bottleneck_is_not_merged_until_it_is_gone(
    policy: Policy, delay: float
) -> None:
    """It has little to do while others are split, which takes several steps, and long ones."""
    each = np.full(256, 1 / 256)
    plant = Plant(policy, {"count": 0.3 * each, "chain": 2 * each}, delay=delay, poll=1.0)
    plant.run(400)
    enough = len(plant.ranges("chain"))
    plant.demand["count"] = 8 * each
    for found in plant.run(600):
        for target in found.targets:
            assert target.operator == "count" or len(target.ranges) > enough
    assert len(plant.ranges("count")) >= 12
    plant.demand = {"count": 0.1 * each, "chain": 0.1 * each}
    plant.run(600)
    assert len(plant.ranges("count")) == len(plant.ranges("chain")) == 1


def test_rates_need_one_step_where_the_threshold_needs_several() -> None:
    steps = {}
    for policy in (CpuThreshold(), RateBased()):
        plant = Plant(policy, {"count": np.full(256, 6 / 256), "chain": np.full(256, 3 / 256)})
        found = [f for f in plant.run(400) if f.targets]
        assert max(plant.cpu("count") + plant.cpu("chain")) <= 0.7
        steps[type(policy)] = len(found)
    assert steps[RateBased] <= 3 < steps[CpuThreshold]  # DS2 promises three


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: CpuThreshold(threshold=1.5), "both are shares"),
        (lambda: CpuThreshold(low=0.7), "low is the lesser"),
        (lambda: CpuThreshold(reports=0), "at least one report"),
        (lambda: CpuThreshold(interval=0), r"CpuThreshold\(interval=0\): must be above 0"),
        (lambda: RateBased(interval="soon"), r"interval='soon'\) is no length of time"),
        (lambda: CpuThreshold(lull=65), "there would never be enough"),
        (lambda: RateBased(reports=65), "there would never be enough"),
        (lambda: RateBased(use=0), "both are shares"),
        (lambda: RateBased(slack=1), "both are shares"),
        (lambda: RateBased(lull=0), "at least one report"),
    ],
)
def test_policies_that_make_no_sense_are_refused(make, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        make()
    assert raised.value.where is not None and raised.value.where.file == __file__


@pytest.mark.parametrize("interval", ["1m", timedelta(minutes=1), 60])
@pytest.mark.parametrize("policy", [CpuThreshold, RateBased])
def test_an_interval_is_a_length_of_time(policy, interval) -> None:
    assert interval_of(policy(interval=interval)) == 60.0


def test_costs_follow_records_inside_an_instance() -> None:
    both = load([[0.4], [0.8]], np.concatenate([np.ones(32), np.arange(32.0)]))
    costs = costs_by_group(both, [0.4, 0.8])
    assert costs[:32].sum() == pytest.approx(0.4) and costs[32:].sum() == pytest.approx(0.8)
    assert costs[0] == pytest.approx(0.4 / 32) and costs[63] > costs[33] > costs[32] == 0
    assert heaviest(both.ranges, costs) == pytest.approx(0.8)


def test_costs_are_numbers_however_long_ago_there_was_a_record() -> None:
    """After an hour and a half of nothing a load is as little as a float can be, and then none."""
    for tiny in (1e-309, 5e-324):
        idle = load([[0.02], [0.02]], np.concatenate([np.full(32, tiny), np.zeros(32)]))
        costs = costs_by_group(idle, [0.02, 0.02])
        assert costs[:32].sum() == costs[32:].sum() == pytest.approx(0.02)
