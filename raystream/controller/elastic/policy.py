"""Policies: which ranges an operator is to have, from what its instances measured.

A policy is a plain function of what was measured since the last change. It has no memory and no
clock of its own, so its decisions can be repeated from a trace. `CpuThreshold` is the policy of
SEEP, `RateBased` that of DS2; anything with an `interval` and a `decide` is a policy too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from raystream.controller.elastic.range_cuts import even, heaviest, weight
from raystream.errors import ConfigError, caller, placed_class
from raystream.schema.lengths import Seconds, wait_of
from raystream.schema.types import KeyRange

KEPT = 64
"""How many reports are kept of an instance: the newest."""
RELIEF = 0.9
"""Cutting a range helps if the heavier part keeps no more than this share of its load."""
REGAINED = 0.75
"""A range that takes more than this share of the records of the range from which it was cut has got
more to do since then: how much that cut has helped says little."""
GROWTH_MAX = 10.0
"""By which factor, at most, a source is assumed to send more if nothing held it back. What it
measures while it is blocked nearly all the time says little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one instance measured in one interval."""

    instance: str
    """The name of the instance."""
    keys: KeyRange
    """The key groups that it serves."""
    t: float
    """The end of the interval, in seconds since the start of the job."""
    seconds: float
    """The length of the interval."""
    cpu: float
    """The share of a core that its process used. One core is all that its one compute thread can
    use."""
    busy: float
    """The share of the time in which it worked."""
    blocked: float
    """The share of the time in which it waited for the instances that read from it. In the rest it
    waited for input."""
    rate_in: float
    """Records taken, a second."""
    rate_out: float
    """Records emitted, a second."""
    waiting: int = 0
    """Records at hand that were not applied, at the end of the interval."""
    state_bytes: int = 0
    """About how many bytes its state takes when it is stored."""

    @property
    def rate(self) -> float:
        """Records a second that it took; for a source, that it emitted."""
        return self.rate_in or self.rate_out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Load:
    """An operator as a policy sees it: its ranges, and what their instances have measured."""

    operator: str
    """The name of the operator."""
    producers: tuple[str, ...]
    """The operators that feed it; none for a source."""
    ranges: tuple[KeyRange, ...]
    """The ranges of its instances, in order. They tile all key groups."""
    reports: tuple[tuple[Report, ...], ...]
    """For each range, its reports since the last change, the oldest first: the newest `KEPT`; none
    if nothing was measured yet."""
    by_group: np.ndarray
    """float64 [G], records by key group; older ones count less."""
    least: int
    """The least number of instances that it may have."""
    most: int
    """The greatest number of instances that it may have."""
    calm: float = 0.0
    """The time, in seconds since the start of the job, since when no operator has got more
    instances. What was measured before may be too little, because instances waited for another one
    that was a bottleneck."""
    parents: tuple[Report | None, ...] = ()
    """For each range, the last report of the range from which it was cut; None if it is not known.
    """


@dataclass(frozen=True, slots=True)
class Target:
    """The ranges that an operator should have."""

    operator: str
    """The name of the operator."""
    ranges: tuple[KeyRange, ...]
    """All its ranges, in order."""
    because: str
    """Why, for people."""


@dataclass(frozen=True, slots=True)
class Unable:
    """A range that has too much load, about which nothing can be done."""

    operator: str
    """The name of the operator."""
    keys: KeyRange
    """The range."""
    because: str
    """What would be needed, and why it cannot be done, for people."""


class Policy(Protocol):
    """Decides which ranges operators are to have."""

    @property
    def interval(self) -> Seconds:
        """The length of the interval of a report."""
        ...

    def decide(self, loads: Sequence[Load], /) -> Iterable[Target | Unable]:
        """What is to change, and what cannot be done. Called when there are new reports.

        Operators that are not mentioned in the answer stay as they are.

        Args:
            loads: of all operators but those that are being changed; each operator comes after
                those that feed it.
        """
        ...


@placed_class
@dataclass(frozen=True)
class CpuThreshold:
    """The policy of SEEP (Castro Fernandez et al., SIGMOD 2013, section 5.1).

    An instance that uses more than `threshold` of its CPU (a core) in `reports` reports in a row is
    a bottleneck, and its range is cut in two where its load halves.

    Two things go beyond that paper. Neighbours are merged again when together they used less than
    `low` in each of `lull` reports since any operator got more instances; because `low` is less
    than the threshold, a constant load is left alone once it is spread. And a range is not cut
    again if its last cut shows that this would not help: the cost of an instance for each epoch,
    and for each instance with which it exchanges records, grows with every cut, so without this
    rule cuts would follow cuts.
    """

    threshold: float = 0.70
    """The share of a core above which an instance is a bottleneck."""
    reports: int = 2
    """In how many reports in a row it has to be above."""
    interval: Seconds = 5.0
    """How long lies between reports."""
    low: float = 0.35
    """The share of a core below which neighbours are merged."""
    lull: int = 6
    """In how many reports in a row they have to be below."""

    def __post_init__(self) -> None:
        _counts(self, self.reports, self.lull)
        _numbers(threshold=self.threshold, low=self.low)
        if not 0 < self.low < self.threshold <= 1:
            raise ConfigError(
                f"CpuThreshold(threshold={self.threshold}, low={self.low}): both are shares of the"
                " CPU of an instance, and low is the lesser",
                where=caller()[0],
                hint="For example threshold=0.7, low=0.35.",
            )

    def decide(self, loads: Sequence[Load]) -> list[Target | Unable]:
        """Split bottlenecks; merge where there are none."""
        hot = {x.operator: self._hot(x) for x in loads}
        found = [f for x in loads for f in self._split(x, hot[x.operator])]
        if any(isinstance(f, Target) for f in found):
            # Instances that wait for a bottleneck have little to do only until that is gone.
            return found
        quiet = [x for x in loads if not hot[x.operator]]
        return found + [t for x in quiet if (t := self._merged(x)) is not None]

    def _hot(self, load: Load) -> list[int]:
        """Which of its ranges are bottlenecks, the worst first."""
        k = self.reports
        found = [
            i
            for i, reports in enumerate(load.reports)
            if len(reports) >= k and all(r.cpu > self.threshold for r in reports[-k:])
        ]
        return sorted(found, key=lambda i: -load.reports[i][-1].cpu)

    def _split(self, load: Load, hot: list[int]) -> Iterable[Target | Unable]:
        room = load.most - len(load.ranges)
        halves: dict[int, tuple[KeyRange, ...]] = {}
        for i in hot:
            keys = load.ranges[i]
            if (left := self._left(load, i)) > RELIEF:
                yield Unable(load.operator, keys, f"{self._why(load, i)}; {_useless(left)}")
                continue
            parts = even(keys, load.by_group, 2)
            total = weight(keys, load.by_group)
            if len(parts) < 2 or (total and heaviest(parts, load.by_group) > RELIEF * total):
                yield Unable(load.operator, keys, f"{self._why(load, i)}; {_one_group(load, keys)}")
            elif len(halves) >= room:  # users may have asked for more than it may have
                yield Unable(load.operator, keys, f"{self._why(load, i)}, and {_full(load)}")
            else:
                halves[i] = parts
        if halves:
            ranges = [p for i, keys in enumerate(load.ranges) for p in halves.get(i, (keys,))]
            why = "; ".join(
                f"{self._why(load, i)}, cut where its load halves: {' '.join(map(str, parts))}"
                for i, parts in halves.items()
            )
            yield Target(load.operator, tuple(ranges), why)

    def _left(self, load: Load, i: int) -> float:
        """What share of its CPU an instance would still use with half of its records, judged by the
        cut from which its range came."""
        parent = load.parents[i] if load.parents else None
        last = load.reports[i][-self.reports :]
        cpu, rate = _mean(r.cpu for r in last), _mean(r.rate for r in last)
        if parent is None or rate > REGAINED * parent.rate:
            return 0.5
        share = rate / parent.rate if rate else 0.5  # no records: timers, for example, cost by rows
        return 1 - (parent.cpu - cpu) / (1 - share) * share / 2 / cpu

    def _why(self, load: Load, i: int) -> str:
        last = load.reports[i][-self.reports :]
        return (
            f"{last[-1].instance} used {_shares(r.cpu for r in last)} of its CPU in"
            f" {_number(len(last), 'report')}, above {self.threshold:.0%}"
        )

    def _merged(self, load: Load) -> Target | None:
        """Merge neighbours that had little to do, from the left."""
        if not _calm(load, self.lull):
            return None
        most = [max(r.cpu for r in reports[-self.lull :]) for reports in load.reports]
        runs: list[tuple[int, int, float]] = []  # neighbours: (first, after the last, CPU)
        for i, cpu in enumerate(most):
            left = len(runs) + len(most) - i  # ranges if this one stays by itself
            if runs and runs[-1][2] + cpu < self.low and left > load.least:
                runs[-1] = (runs[-1][0], i + 1, runs[-1][2] + cpu)
            else:
                runs.append((i, i + 1, cpu))
        merged = [r for r in runs if r[1] - r[0] > 1]
        if not merged:
            return None
        ranges = tuple(KeyRange(load.ranges[a].lo, load.ranges[b - 1].hi) for a, b, _ in runs)
        why = "; ".join(
            f"{' '.join(r[-1].instance for r in load.reports[a:b])} together used at most"
            f" {cpu:.0%} of a CPU share in {_number(self.lull, 'report')}, below {self.low:.0%}"
            for a, b, cpu in merged
        )
        return Target(load.operator, ranges, why)


@placed_class
@dataclass(frozen=True)
class RateBased:
    """Sizes all operators in one step from true processing rates, as DS2 does (Kalavri et al., OSDI
    2018).

    The true rate of an instance is its number of records divided by the time in which it worked,
    not by all time. The rates that sources would have if nothing held them back are followed
    through the operators: the output of each grows as its input does. An operator gets as many
    ranges of equal load as keep each busy for at most `use` of its time.

    DS2 measures once and acts. This policy acts on the mean of `reports` reports. It takes away
    instances only if in `lull` reports fewer would have been enough, with `slack` to spare.
    """

    use: float = 0.70
    """The share of its time that an instance may be busy."""
    reports: int = 2
    """How many reports are averaged."""
    interval: Seconds = 5.0
    """How long lies between reports."""
    slack: float = 0.2
    """The share of `use` that has to stay free when instances are taken away."""
    lull: int = 6
    """In how many reports in a row fewer instances have to be enough."""

    def __post_init__(self) -> None:
        _counts(self, self.reports, self.lull)
        _numbers(use=self.use, slack=self.slack)
        if not (0 < self.use <= 1 and 0 < self.slack < 1):
            raise ConfigError(
                f"RateBased(use={self.use}, slack={self.slack}): both are shares",
                where=caller()[0],
                hint="For example use=0.7, slack=0.2.",
            )

    def decide(self, loads: Sequence[Load]) -> list[Target | Unable]:
        """Size every operator of which enough is known."""
        growth = self._growth(loads)
        found: list[Target | Unable] = []
        for x in loads:
            if all(len(r) >= self.reports for r in x.reports):
                found += self._sized(x, growth[x.operator])
        return found

    def _growth(self, loads: Sequence[Load]) -> dict[str, float]:
        """By operator, by which factor its input would grow if nothing held the sources back."""
        outs: dict[str, float] = {}
        growth: dict[str, float] = {}
        for x in loads:
            last = [r for reports in x.reports for r in reports[-self.reports :]]
            outs[x.operator] = sum(r.rate_out for r in last)
            fed = [p for p in x.producers if p in growth]
            if fed:
                now = {p: outs[p] for p in fed}
                then = {p: outs[p] * growth[p] for p in fed}
            else:
                now = {r.instance: 0.0 for r in last}
                then = dict(now)
                for r in last:
                    now[r.instance] += r.rate_out
                    then[r.instance] += r.rate_out / max(1.0 - r.blocked, 1.0 / GROWTH_MAX)
            total = sum(now.values())
            growth[x.operator] = sum(then.values()) / total if total else 1.0
        return growth

    def _sized(self, load: Load, growth: float) -> Iterable[Target | Unable]:
        n = len(load.ranges)
        busy = [_mean(r.busy for r in reports[-self.reports :]) for reports in load.reports]
        costs = costs_by_group(load, busy) * growth
        if heaviest(load.ranges, costs) > self.use:
            ranges = self._cut(costs, self.use, load)
            if heaviest(ranges, costs) <= RELIEF * heaviest(load.ranges, costs):
                yield Target(load.operator, ranges, self._why(load, busy, growth, len(ranges)))
            else:
                yield self._unable(load, costs)
        elif n > load.least and _calm(load, self.lull):
            most = [max(r.busy for r in reports[-self.lull :]) for reports in load.reports]
            costs = costs_by_group(load, most) * growth
            ranges = self._cut(costs, self.use * (1 - self.slack), load)
            if len(ranges) < n and heaviest(ranges, costs) <= self.use:
                yield Target(load.operator, ranges, self._why(load, most, growth, len(ranges)))

    def _cut(self, costs: np.ndarray, use: float, load: Load) -> tuple[KeyRange, ...]:
        """The fewest ranges of equal cost that are enough; `load.most` if no number is."""
        everything = KeyRange(0, len(costs))
        bound = max(use, float(costs.max()) / RELIEF)
        least = max(load.least, min(load.most, math.ceil(float(costs.sum()) / bound)))
        for n in range(least, load.most):
            ranges = even(everything, costs, n)
            if heaviest(ranges, costs) <= bound:
                return ranges
        return even(everything, costs, load.most)

    def _unable(self, load: Load, costs: np.ndarray) -> Unable:
        keys = max(load.ranges, key=lambda r: weight(r, costs))
        why = _full(load) if len(load.ranges) >= load.most else _one_group(load, keys)
        return Unable(
            load.operator,
            keys,
            f"{load.operator} {keys} would be busy for {weight(keys, costs):.0%} of the time,"
            f" above {self.use:.0%}; {why}",
        )

    def _why(self, load: Load, busy: Sequence[float], growth: float, n: int) -> str:
        rate = sum(r[-1].rate for r in load.reports)
        true = rate / sum(busy) if sum(busy) else math.inf
        return (
            f"{rate * growth:,.0f} records/s are to be expected and one instance can take"
            f" {true:,.0f}/s: {n} of them, busy for at most {self.use:.0%} of the time"
        )


def costs_by_group(load: Load, costs: Sequence[float]) -> np.ndarray:
    """The costs of an operator by key group (float64 [G]): the cost of each instance is spread over
    its key groups in proportion to their records."""
    out = np.zeros(len(load.by_group))
    for keys, cost in zip(load.ranges, costs, strict=True):
        own = load.by_group[keys.lo : keys.hi]
        total = float(own.sum())
        # In this order: the rest of an old load may be so small that the cost divided by it would
        # be infinite.
        out[keys.lo : keys.hi] = own / total * cost if total else cost / len(keys)
    return out


def _numbers(**given: object) -> None:
    """Refuse what is no number."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise ConfigError(f"{name}={value!r:.80} of a policy is a number", where=caller()[0])


def _counts(policy: Policy, reports: int, lull: int) -> None:
    wait_of(type(policy).__name__, "interval", policy.interval, zero=False)
    _numbers(reports=reports, lull=lull)
    if min(reports, lull) < 1:
        wrong = f"reports={reports}, lull={lull}: at least one report each"
        raise ConfigError(wrong, where=caller()[0])
    if max(reports, lull) > KEPT:
        raise ConfigError(
            f"reports={reports}, lull={lull}: of an instance the newest {KEPT} reports are kept, so"
            " there would never be enough",
            where=caller()[0],
            hint="For a longer time take a longer interval.",
        )


def _one_group(load: Load, keys: KeyRange) -> str:
    own = load.by_group[keys.lo : keys.hi]
    group = keys.lo + int(own.argmax())
    total = float(own.sum())
    share = f" has {float(own.max()) / total:.0%} of its load and" if total else ""
    return f"key group {group}{share} cannot be cut"


def _useless(left: float) -> str:
    return (
        f"with half of its records it would still use {min(left, 1):.0%} of that, as its last cut"
        " shows: it is not cut"
    )


def _calm(load: Load, lull: int) -> bool:
    """Whether all its instances have `lull` reports since no operator has got more instances."""
    last = [r[-lull] for r in load.reports if len(r) >= lull]
    return len(last) == len(load.reports) and all(r.t - r.seconds >= load.calm for r in last)


def _full(load: Load) -> str:
    return f"{load.operator} may have no more than {_number(load.most, 'instance')}"


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _shares(values: Iterable[float]) -> str:
    return " and ".join(f"{v:.0%}" for v in values)


def _number(n: int, what: str) -> str:
    return f"{n} {what}" + ("s" if n != 1 else "")
