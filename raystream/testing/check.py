"""`check_operator`: does an operator keep the law that makes moving and recovering it safe?

With the same epoch boundaries, what it emits is a function of its input alone, bit for bit: however
its keys and its input are cut into instances, wherever it is checkpointed and restored, compiled or
not. With other boundaries it emits the same records, where that is promised.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from raystream.api.arguments import check_flag, whole
from raystream.api.declarations import spec_of
from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import is_triggered
from raystream.errors import GraphError, placed
from raystream.schema.types import BEFORE_ALL, MAX_KEY_GROUPS, NEVER, KeyRange
from raystream.testing.bench import Bench, EpochOutput
from raystream.testing.same import difference

TimeUnit = Literal["s", "ms", "us", "ns"]


@placed
def check_operator(
    op: Any,
    records: Iterable[Any],
    *,
    recut: bool | None = None,
    examples: int = 20,
    seed: int | None = None,
    key_groups: int | None = None,
    time_unit: TimeUnit = "s",
) -> None:
    """Run an operator in many ways that must not matter, and compare what it emits.

    Args:
        op: the operator, as it would be given to `through`.
        records: what it takes, of all its types, in the order in which they come. Use few keys, and
            values that bring out every branch.
        recut: whether other epoch boundaries must give the same records. Unless given they must if
            the operator has `order_by` or takes one type, and has neither timers nor windows that
            close more than once or by a count: what these do depends on the watermark. Set it for
            an operator that takes several types and does not look at their order; unset it for one
            that means its batches.
        examples: how many ways are tried.
        seed: try the one way that an earlier failure named.
        key_groups: of the job; 16 unless given, so that keys meet in instances; 256 where the
            operator has `load`, since `rs.key_groups` counts so many unless told.
        time_unit: of event time, as of a flow.

    Raises:
        AssertionError: the operator is not deterministic. The message says what was done and where
        the first difference is.
    """
    if not isinstance(records, Iterable):
        raise GraphError(f"check_operator({records!r:.80}): the records are a list of records")
    given = list(records)
    spec = spec_of(op)
    examples = whole("check_operator", "examples", examples, 1, NEVER)
    if seed is not None:
        seed = whole("check_operator", "seed", seed, 0, NEVER)
    if key_groups is not None:
        key_groups = whole("check_operator", "key_groups", key_groups, 1, MAX_KEY_GROUPS)
    if recut is not None:
        check_flag("check_operator", "recut", recut)
    if key_groups is None:
        key_groups = 16 if spec.load is None else 256
    if recut is None:
        recut = (
            spec.timer is None
            and not is_triggered(spec.window)
            and (spec.order_by is not None or len(spec.inputs) == 1)
        )
    first = random.SystemRandom().getrandbits(32) if seed is None else seed
    for number in range(first, first + (examples if seed is None else 1)):
        _Example(op, spec, given, number, key_groups, time_unit).check(recut=recut)


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The input of one epoch."""

    records: list[Any]
    groups: list[int]
    """For each record the key group of its source's split, ascending."""
    watermark: int


@dataclass
class _Way:
    """One way to run the operator, and what was done, in words."""

    epochs: list[_Epoch]
    ranges: list[KeyRange]
    sources: list[KeyRange]
    moves: dict[int, list[KeyRange]] = field(default_factory=dict)
    compiled: dict[int, bool] = field(default_factory=dict)
    """Whether compiled code goes on after an epoch; at 0 whether it begins."""

    def __str__(self) -> str:
        said = [f"epochs of {', '.join(str(len(e.records)) for e in self.epochs)} records"]
        said.append(f"instances {_shown(self.ranges)}")
        if len(self.sources) > 1:
            said.append(f"its input from {_shown(self.sources)}")
        if 0 in self.compiled:
            said.append("compiled" if self.compiled[0] else "interpreted")
        for at, ranges in self.moves.items():
            how = {True: ", compiled", False: ", interpreted"}.get(self.compiled.get(at), "")  # type: ignore[arg-type]
            said.append(f"restored after epoch {at} into {_shown(ranges)}{how}")
        return "; ".join(said)


def _shown(ranges: Sequence[KeyRange]) -> str:
    return " ".join(map(str, ranges))


class _Example:
    """One seed: an input cut into epochs, and other ways to run it."""

    def __init__(
        self,
        op: Any,
        spec: OperatorSpec,
        records: list[Any],
        seed: int,
        groups: int,
        unit: TimeUnit,
    ) -> None:
        self.op = op
        self.spec = spec
        self.records = records
        self.seed = seed
        self.rng = random.Random(seed)
        self.groups = groups
        self.unit: TimeUnit = unit
        self.times = [_time(spec, r) for r in records]

    def check(self, *, recut: bool) -> None:
        whole = [KeyRange(0, self.groups)]
        plain = _Way(self._epochs(self._cut(len(self.records)), late=True), whole, whole)
        expected = self._run(plain)
        moved = _Way(plain.epochs, self._ranges(), self._ranges())
        for at in range(1, len(plain.epochs)):
            if self.rng.random() < 0.4:
                moved.moves[at] = self._ranges()
        self._compare(plain, expected, moved, self._run(moved, plain))
        if self.spec.compiled:
            other = _Way(plain.epochs, whole, whole, dict(moved.moves), {0: False})
            other.compiled |= {at: self.rng.random() < 0.5 for at in other.moves}
            self._compare(plain, expected, other, self._run(other, plain))
        if recut:
            one, two = (
                _Way(self._epochs(checkpoints, late=False), whole, whole)
                for checkpoints in (self._ordered_cut(), self._ordered_cut())
            )
            self._compare_recut(one, self._run(one), two, self._run(two, one))

    # ------------------------------------------------------------ ways

    def _cut(self, n: int) -> list[int]:
        """Where epochs end, ascending: some are empty, some long."""
        return sorted(self.rng.randint(0, n) for _ in range(self.rng.randrange(7)))

    def _ordered_cut(self) -> list[int]:
        """Where epochs may end for a source in order: never between equal or falling `order_by`."""
        by, checkpoints = self.spec.order_by, self._cut(len(self.records))
        if by is None:
            return checkpoints
        at = [getattr(r, by) for r in self.records]
        return [
            c for c in checkpoints if max(at[:c], default=BEFORE_ALL) < min(at[c:], default=NEVER)
        ]

    def _epochs(self, ends: list[int], *, late: bool) -> list[_Epoch]:
        """Epochs of all records. late: the watermark may run ahead of records still to come."""
        ahead = late and self.rng.random() < 0.5
        epochs = []
        for lo, hi in pairwise([0, *ends, len(self.records)]):
            known = self.times[:hi] if ahead else self.times[hi:]
            watermark = (max if ahead else min)(known, default=BEFORE_ALL)
            groups = sorted(self.rng.randrange(self.groups) for _ in range(lo, hi))
            epochs.append(_Epoch(self.records[lo:hi], groups, watermark))
        return epochs

    def _ranges(self) -> list[KeyRange]:
        most = max(2, self.groups)  # one key group alone cannot be cut
        bounds = {self.rng.randrange(1, most) for _ in range(self.rng.randrange(4))}
        return [KeyRange(lo, hi) for lo, hi in pairwise(sorted({0, self.groups, *bounds}))]

    # ------------------------------------------------------------ runs

    def _run(self, way: _Way, plain: _Way | None = None) -> list[EpochOutput]:
        """What each epoch emits. plain: the way that went well, if this is another."""
        try:
            return self._emitted(way)
        except Exception as error:
            if plain is not None:
                error.add_note(
                    self._story("fails where another way to run it does not", plain, way)
                )
            raise

    def _emitted(self, way: _Way) -> list[EpochOutput]:
        bench = Bench(
            self.op,
            key_groups=self.groups,
            time_unit=self.unit,
            sources=way.sources,
            ranges=way.ranges,
            compiled=way.compiled.get(0),
        )
        out = []
        for i, epoch in enumerate(way.epochs, 1):
            ended = i == len(way.epochs)
            watermark = NEVER if ended else epoch.watermark
            out.append(bench.epoch(epoch.records, epoch.groups, watermark, ended=ended))
            if i in way.moves:
                bench.move(way.moves[i], compiled=way.compiled.get(i))
        return out

    # ------------------------------------------------------------ verdicts

    def _compare(
        self, plain: _Way, expected: list[EpochOutput], other: _Way, found: list[EpochOutput]
    ) -> None:
        for i, (one, two) in enumerate(zip(expected, found, strict=True), 1):
            for what, a, b in zip(("emits", "is late for"), one, two, strict=True):
                if (first := difference(a, b)) is not None:
                    raise AssertionError(
                        self._story("is not deterministic", plain, other)
                        + f"\n  in epoch {i} it {what}, in the first way and in the second:"
                        + f"\n    {first}"
                        + f"\n  {_HINT_COMPILED if other.compiled else _HINT}"
                    )

    def _compare_recut(
        self, one: _Way, first: list[EpochOutput], two: _Way, second: list[EpochOutput]
    ) -> None:
        a, b = (Counter(repr(r) for e in run for r in e.records) for run in (first, second))
        if a != b:
            only = [f"{way} alone: {next(iter(x - y), 'nothing')}" for way, x, y in
                    (("first", a, b), ("second", b, a))]  # fmt: skip
            raise AssertionError(
                self._story("depends on where epochs are cut", one, two)
                + "".join(f"\n    {line}" for line in only)
                + f"\n  {_HINT_RECUT}"
            )

    def _story(self, what: str, one: _Way, two: _Way) -> str:
        return f"{self.spec.name} {what} (seed={self.seed})\n  first:  {one}\n  second: {two}"


_HINT = "What is not in its rs.State row, or comes from the machine, is another after a move."
_HINT_COMPILED = "Compiled code holds fixed-width numbers: narrower fields round or refuse."
_HINT_RECUT = (
    "Sums of floats over a batch, or anything counted per call, differ with the batch. If that is"
    " meant: recut=False."
)


def _time(spec: OperatorSpec, record: Any) -> int:
    """The event time of a record; BEFORE_ALL where nothing says it."""
    name = spec.time if spec.window is not None or spec.order_by is None else spec.order_by
    time = getattr(record, name, None)
    return time if type(time) is int else BEFORE_ALL
