"""Policies: which ranges an operator is to have, from what its instances measured.

A policy is a plain function of what was measured since the last change, with no memory and no clock
of its own: what it decides can be repeated from a trace. `CpuThreshold` is the one of SEEP,
`RateBased` that of DS2; anything with an `interval` and a `decide` is another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from raystream.controller.cutting import even, heaviest, weight
from raystream.errors import ConfigError
from raystream.schema.types import KeyRange

KEPT = 64
"""So many reports are kept of an instance, the newest."""
RELIEF = 0.9
"""A cut is of use if the heavier part is left with no more than this share of the load."""
REGAINED = 0.75
"""A range that takes in more than this share of what the one took in that it was cut from has got
more to do since: what that cut was worth says little."""
GROWTH_MAX = 10.0
"""How much more than now a source may want to send: what it measures while it is blocked nearly
all the time says little."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one instance measured in one interval.

    t: seconds from the start of the job to its end; seconds: how long it was. cpu: what its process
    used of a core, which is all that its one thread that computes can use. busy, blocked: shares of
    the time in which it worked, and in which it waited for those who read from it; in the rest it
    waited for input.
    rate_in, rate_out: records a second. waiting: records at hand and not yet applied, at the end.
    state_bytes: about what its state takes when it is stored.
    """

    instance: str
    keys: KeyRange
    t: float
    seconds: float
    cpu: float
    busy: float
    blocked: float
    rate_in: float
    rate_out: float
    waiting: int = 0
    state_bytes: int = 0

    @property
    def rate(self) -> float:
        """Records a second that it took, of a source that it gave."""
        return self.rate_in or self.rate_out


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What is known of one operator.

    producers: the operators that feed it, none of a source. ranges: of its instances, in order,
    all key groups together. reports: by range, the oldest first, the newest `KEPT` since the last
    change, none where nothing was measured yet. by_group: float64 [G], records by key group, those
    of long ago counting for less. least, most: how many instances it may have. calm: since when, in
    seconds from the start of the job, no operator has got more instances. What was measured before
    may be little because others waited for one that was a bottleneck.
    """

    operator: str
    producers: tuple[str, ...]
    ranges: tuple[KeyRange, ...]
    reports: tuple[tuple[Report, ...], ...]
    by_group: np.ndarray
    least: int
    most: int
    calm: float = 0.0
    parents: tuple[Report | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The ranges that an operator shall have, and why, for people."""

    operator: str
    ranges: tuple[KeyRange, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Unable:
    """What would be needed and cannot be done. keys: the range that it is about."""

    operator: str
    keys: KeyRange
    because: str


class Policy(Protocol):
    """Decides which ranges operators are to have.

    interval: seconds of a report. `decide` is called when there are new reports; operators that it
    does not mention stay as they are, and it hears nothing of those that are being changed. All
    operators come after those that feed them.
    """

    @property
    def interval(self) -> float: ...

    def decide(self, loads: Sequence[Load], /) -> Iterable[Target | Unable]: ...


@dataclass(frozen=True)
class CpuThreshold:
    """The policy of SEEP (Castro Fernandez et al., SIGMOD 2013, section 5.1): an instance that
    uses more than `threshold` of its CPU (a core) in `reports` reports in a row is a bottleneck,
    and its range is cut in two where its load halves.

    Beyond that paper, neighbours are merged again when together they used less than `low` in each
    of `lull` reports since any operator got more instances. `low` is less than the threshold, so a
    constant load is left alone once it is spread. And a range is not cut again whose last cut shows
    that it would not help: what an instance costs by epoch, and by instance that it exchanges
    records with, grows with each cut, and without this rule cuts would follow cuts.

    interval: seconds between reports.
    """

    threshold: float = 0.70
    reports: int = 2
    interval: float = 5.0
    low: float = 0.35
    lull: int = 6

    def __post_init__(self) -> None:
        _counts(self.reports, self.lull, self.interval)
        if not 0 < self.low < self.threshold <= 1:
            raise ConfigError(
                f"CpuThreshold(threshold={self.threshold}, low={self.low}): both are shares of the"
                " CPU of an instance, and low is the lesser",
                hint="For example threshold=0.7, low=0.35.",
            )

    def decide(self, loads: Sequence[Load]) -> list[Target | Unable]:
        """Split bottlenecks; merge where there are none."""
        hot = {x.operator: self._hot(x) for x in loads}
        found = [f for x in loads for f in self._split(x, hot[x.operator])]
        if any(isinstance(f, Target) for f in found):
            return found  # who waits for a bottleneck has little to do only until it is gone
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
            elif len(halves) >= room:  # there are more than it may have where people said so
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
        """What share of its CPU an instance would still use with half of its records, as the cut
        that its range came from shows."""
        parent = load.parents[i] if load.parents else None
        last = load.reports[i][-self.reports :]
        cpu, rate = _mean(r.cpu for r in last), _mean(r.rate for r in last)
        if parent is None or rate > REGAINED * parent.rate:
            return 0.5
        share = rate / parent.rate if rate else 0.5  # without records it has timers, say: by rows
        return 1 - (parent.cpu - cpu) / (1 - share) * share / 2 / cpu

    def _why(self, load: Load, i: int) -> str:
        last = load.reports[i][-self.reports :]
        return (
            f"{last[-1].instance} used {_shares(r.cpu for r in last)} of its CPU in"
            f" {_number(len(last), 'report')}, above {self.threshold:.0%}"
        )

    def _merged(self, load: Load) -> Target | None:
        """Neighbours that had little to do become one, from the left."""
        if not _calm(load, self.lull):
            return None
        most = [max(r.cpu for r in reports[-self.lull :]) for reports in load.reports]
        runs: list[tuple[int, int, float]] = []  # of neighbours: the first, after the last, CPU
        for i, cpu in enumerate(most):
            left = len(runs) + len(most) - i  # so many there are if this one stays by itself
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


@dataclass(frozen=True)
class RateBased:
    """Sizes all operators in one step from true processing rates, as DS2 does (Kalavri et al., OSDI
    2018): records by the time in which an instance worked, not by all time. What a source would
    send if nobody held it back is followed through the operators, each of which grows its output
    as it grows its input; an operator gets as many ranges of equal load as keep each busy for at
    most `use` of its time.

    DS2 measures once and acts; this acts on the mean of `reports`, and has fewer instances only
    when in `lull` reports a size with `slack` to spare was less than the present one.
    """

    use: float = 0.70
    reports: int = 2
    interval: float = 5.0
    slack: float = 0.2
    lull: int = 6

    def __post_init__(self) -> None:
        _counts(self.reports, self.lull, self.interval)
        if not (0 < self.use <= 1 and 0 < self.slack < 1):
            raise ConfigError(
                f"RateBased(use={self.use}, slack={self.slack}): both are shares",
                hint="For example use=0.7, slack=0.2.",
            )

    def decide(self, loads: Sequence[Load]) -> list[Target | Unable]:
        """The size of every operator of which enough is known."""
        growth = self._growth(loads)
        found: list[Target | Unable] = []
        for x in loads:
            if all(len(r) >= self.reports for r in x.reports):
                found += self._sized(x, growth[x.operator])
        return found

    def _growth(self, loads: Sequence[Load]) -> dict[str, float]:
        """By operator: how much more would come in than does, if nobody held the sources back."""
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
        """As few ranges of equal cost as are enough; as many as are of use if none are."""
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
    """The costs of the instances of an operator by key group (float64 [G]): that of each in
    proportion to the records of its key groups."""
    out = np.zeros(len(load.by_group))
    for keys, cost in zip(load.ranges, costs, strict=True):
        own = load.by_group[keys.lo : keys.hi]
        total = float(own.sum())
        # In this order: what is left of a load of long ago is so little that a cost divided by it
        # would be infinite.
        out[keys.lo : keys.hi] = own / total * cost if total else cost / len(keys)
    return out


def _counts(reports: int, lull: int, interval: float) -> None:
    if reports < 1 or lull < 1 or not interval > 0:
        raise ConfigError(
            f"reports={reports}, lull={lull}, interval={interval}: at least one report each, of"
            " more than no seconds"
        )
    if max(reports, lull) > KEPT:
        raise ConfigError(
            f"reports={reports}, lull={lull}: of an instance the newest {KEPT} reports are kept, so"
            " there would never be enough",
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
    """Whether the last so many reports of all its instances say how little it has to do."""
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
