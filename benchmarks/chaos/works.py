"""The jobs that are struck, and what each of them has answered."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks.chaos import storm
from benchmarks.chaos.faults import Chains
from benchmarks.shared import words

SPEED = 10
"""How much faster than its own time the word count runs."""


class Answers(NamedTuple):
    """What a job that ended has said. found: how many answers; wrong: too many, too few or
    different ones. recoveries: Unix time, seconds, who was replaced."""

    found: int
    wrong: int
    recoveries: list[tuple[float, float, tuple[str, ...]]]
    moved: list[storm.Done]

    @classmethod
    def of(cls, report: Any, found: int, wrong: int) -> Answers:
        """Those of a job with this report."""
        recoveries = [(report.started + r.t, r.seconds, r.gone) for r in report.recoveries]
        moved = [storm.Done(m.because, m.failed, m.ended - m.t) for m in report.moved]
        return cls(found, wrong, recoveries, moved)


Tell = Callable[[Any], None]
"""Is told of a job's progress, sample by sample."""


class Work(Protocol):
    """A kind of job."""

    @property
    def chains(self) -> Chains: ...

    def run(self, tell: Tell, seconds: int, **options: Any) -> Answers:
        """Run it for so long, about, and check what it answers."""
        ...


@dataclass(frozen=True)
class Words:
    """The word count: in windows, or numbered over a source that is cut by the clock."""

    rate: int
    arrival: bool
    together: bool = False
    """Whether instances share processes, and are struck together."""
    chains: Chains = (("lines", "count", "counts"),)

    def lines(self, seconds: int) -> words.Lines:
        """What is counted in so many seconds."""
        return words.Lines(max(2, self.rate // SPEED), seconds * SPEED)

    def run(self, tell: Tell, seconds: int, **options: Any) -> Answers:
        lines = self.lines(seconds)
        with tempfile.TemporaryDirectory() as folder:
            undisturbed, disturbed = Path(folder, "undisturbed"), Path(folder, "disturbed")
            if self.arrival:
                expected = words.numbered(lines)
                flow = words.arriving(disturbed, lines, wait=1 / SPEED)
            else:
                spec = {"rate": lines.rate, "seconds": lines.seconds}
                words.flow(undisturbed, speed=None, **spec).run()
                expected = words.answers(undisturbed)
                flow = words.flow(disturbed, speed=SPEED, **spec)
            report = flow.run(
                checkpoint_seconds=1.0,
                instances={"count": 2},
                together=self.together,
                on_progress=tell,
                **options,
            )
            got = words.answers(disturbed)
        return Answers.of(report, len(got), differences(expected, got))


@dataclass
class LinearRoad:
    """Linear Road over a prepared folder, as fast as makes it last so long. epoch: real seconds of
    an epoch, if not as long as usual."""

    data: Path
    epoch: float | None = None
    chains: Chains = (
        ("rows", "vehicles", "places", "segments", "accounts", "answers"),
        ("rows", "vehicles", "segments", "answers"),
        ("rows", "expenditure", "answers"),
    )
    _expected: str = ""

    def run(self, tell: Tell, seconds: int, **options: Any) -> Answers:
        from lrb.query.run import run
        from lrb.query.source import look_through
        from lrb.reporting.elastic import epoch_of

        prepared = look_through(self.data.resolve())
        speed = prepared.meta.seconds / seconds
        with tempfile.TemporaryDirectory() as folder:
            self._expected = self._expected or run(prepared, Path(folder, "right"))["checksum"]
            got = run(
                prepared,
                Path(folder, "disturbed"),
                speed=speed,
                epoch=self.epoch and epoch_of(self.epoch, speed),
                instances={"vehicles": 2, "segments": 2},
                on_progress=lambda sample, _: tell(sample),
                **options,
            )
        recoveries = [
            (got["started"] + r["t"], r["seconds"], tuple(r["gone"])) for r in got["recoveries"]
        ]
        moved = [
            storm.Done(m["because"], m["failed"], m["place"] + m["restore"] + m["replay"])
            for m in got["moved"]
        ]
        wrong = int(got["checksum"] != self._expected)
        return Answers(sum(got["rows_out"].values()), wrong, recoveries, moved)


def differences(expected: Iterable[Any], got: Iterable[Any]) -> int:
    """How many answers are missing, too many or different."""
    right, said = Counter(expected), Counter(got)
    return (right - said).total() + (said - right).total()
