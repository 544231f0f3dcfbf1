"""What a job has done in all, as its journal keeps it: counts that never fall.

What the instances count goes back when one of them goes on from a checkpoint, and comes up to the
same numbers again. The totals here are the greatest that were known. They are in the journal, and
only what is written there is shown, so a controller that is restarted goes on from what was shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Progress, marks_in
from raystream.schema.types import KeyRange

BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""The upper bounds of the buckets of every histogram, in seconds."""
WRITE_SECONDS = 10.0
"""Totals are written with each commit, and after this time if there was none."""
LATER_SECONDS = 1.0
"""What a sink says of an epoch waits this long for what the sources say of it."""
EPOCHS_MAX = 4096
"""The number of epochs of which the totals know when the sources sent them."""
COUNTED = ("records_in", "records_out", "late", "ahead")


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many durations were how long."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """How many were in each bucket: up to each of `BOUNDS`, and above the last."""
    seconds: float = 0.0
    """Their sum."""

    def plus(self, seconds: float, many: int = 1) -> Histogram:
        """With some durations more."""
        counts = list(self.counts)
        counts[bisect_left(BOUNDS, seconds)] += many
        return Histogram(tuple(counts), self.seconds + seconds * many)

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def upto(self) -> list[tuple[str, int]]:
        """How many were up to each upper bound, with the bound as it is written."""
        found, n = [], 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            n += count
            found.append((bound, n))
        return found

    def quantile(self, share: float) -> float | None:
        """About the duration that a share of them did not exceed; None without any."""
        wanted, n, low = share * self.count, 0, 0.0
        if not self.count:
            return None
        for bound, count in zip(BOUNDS, self.counts[:-1], strict=True):
            if count and n + count >= wanted:
                return low + (bound - low) * max(0.0, wanted - n) / count
            n, low = n + count, bound
        return BOUNDS[-1]

    def since(self, before: Histogram) -> Histogram:
        """Without those that were there before."""
        counts = (now - then for now, then in zip(self.counts, before.counts, strict=True))
        return Histogram(tuple(max(0, n) for n in counts), max(0.0, self.seconds - before.seconds))


@dataclass(frozen=True, slots=True)
class OperatorTotals:
    """What an operator, source or sink has done in all."""

    records_in: int = 0
    """How many records it has taken."""
    records_out: int = 0
    """How many records it has emitted."""
    late: int = 0
    """How many of those that it took were late."""
    ahead: int = 0
    """Of a source: how many records it has set aside, because their times were far ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a job has done in all."""

    operators: Mapping[str, OperatorTotals] = field(default_factory=dict)
    """By operator, source and sink."""
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    """By sink: seconds from when the last source had sent an epoch to when the sink had written it.
    Clocks of different nodes are compared."""
    epochs: Histogram = Histogram()
    """Seconds from one epoch of a source to its next."""
    checkpoints: Histogram = Histogram()
    """Seconds until the slowest instance had a committed checkpoint stored in all copies."""


class RunningTotals:
    """Adds up what instances say. Nothing here decides.

    Args:
        totals: those of the journal from which the controller goes on.
    """

    def __init__(self, plan: Plan, totals: Totals) -> None:
        self.totals = totals
        self._kinds = {v.name: v.kind for v in plan.vertices}
        self._sent: dict[int, dict[KeyRange, float]] = {}  # by epoch and source range, when
        self._seen: dict[tuple[str, KeyRange], tuple[int, float]] = {}  # the newest mark of each
        self._waiting: list[tuple[float, str, int, float]] = []  # (from when on, sink, epoch, time)
        self._written = 0.0

    def due(self, now: float) -> bool:
        """Whether the totals are to be written without a commit."""
        self._written = self._written or now
        return now - self._written >= WRITE_SECONDS

    def heard(self, keys: KeyRange, progress: Progress, now: float) -> None:
        """Take what the owner of a range of a source or a sink says of when it had passed which
        epoch."""
        kind = self._kinds.get(progress.vertex)
        if not progress.marks or kind not in ("source", "sink"):
            return
        epoch, at = self._seen.get((progress.vertex, keys), (0, 0.0))
        for next_epoch, time in marks_in(progress.marks):
            if next_epoch <= epoch:
                continue
            if kind == "sink":
                self._waiting.append((now + LATER_SECONDS, progress.vertex, next_epoch, time))
            else:
                self._sent.setdefault(next_epoch, {}).setdefault(keys, time)
                if at:
                    many = next_epoch - epoch
                    each = max(0.0, time - at) / many
                    self.totals = replace(self.totals, epochs=self.totals.epochs.plus(each, many))
            epoch, at = next_epoch, time
        self._seen[progress.vertex, keys] = epoch, at
        while len(self._sent) > EPOCHS_MAX:
            del self._sent[next(iter(self._sent))]

    def stored(self, owners: Iterable[Progress]) -> None:
        """Take how long the checkpoint took that is committed now."""
        took = max((p.image_seconds for p in owners if p.image_bytes), default=0.0)
        self.totals = replace(self.totals, checkpoints=self.totals.checkpoints.plus(took))

    def summed(self, owners: Iterable[Progress], now: float) -> Totals:
        """The totals now, which are to be written."""
        self._written = now
        found: dict[str, dict[str, int]] = {}
        for p in owners:
            counts = found.setdefault(p.vertex, dict.fromkeys(COUNTED, 0))
            for name in COUNTED:
                counts[name] += getattr(p, name)
        operators = dict(self.totals.operators)
        for name, now_ in found.items():
            before = operators.get(name, OperatorTotals())
            greatest = {what: max(n, getattr(before, what)) for what, n in now_.items()}
            operators[name] = OperatorTotals(**greatest)
        self.totals = replace(self.totals, operators=operators, latency=self._latencies(now))
        return self.totals

    def _latencies(self, now: float) -> Mapping[str, Histogram]:
        latency = dict(self.totals.latency)
        ripe = [w for w in self._waiting if w[0] <= now]
        self._waiting = [w for w in self._waiting if w[0] > now]
        for _, sink, epoch, time in ripe:
            if sent := self._sent.get(epoch):
                took = max(0.0, time - max(sent.values()))
                latency[sink] = latency.get(sink, Histogram()).plus(took)
        return latency
