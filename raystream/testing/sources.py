"""`check_source`: does each record come once, whatever dies while it is read?

A small job is played around the source: a process reads its splits, ends epochs, stores
checkpoints. At each call of the source the process dies or falls asleep, and another one goes on
from the newest checkpoint; one that fell asleep wakes later and goes on as if nothing had happened.
At times the whole job is lost, and goes on from a saved checkpoint. What is decided once, where
epochs end and what is recorded, is decided by the same code as in a job.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raystream.api.batch import Batch
from raystream.api.connectors import Source, record_of, source_of
from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.live import LiveSplit, Senders, Sent
from raystream.dataflow.sources.split_reader import SplitReader, tell_end
from raystream.errors import Where, placed
from raystream.schema.records import RecordSchema
from raystream.schema.types import BEFORE_ALL, LocalDirectory, SourceContext, Split
from raystream.testing.sinks import Fuse, Killed

NAME = "source"
SILENT = 5
"""After all records have come, this many reads without any are the end of a source without one."""
SILENT_MOST = 200
"""Reads in a row without a record after which nothing more comes."""


@placed
def check_source(
    make: Callable[[], Any],
    *,
    expected: Iterable[Any] | None = None,
    begin: Callable[[], object] | None = None,
    every_call: bool = True,
    examples: int = 20,
    seed: int | None = None,
) -> None:
    """Read a source in many small jobs whose processes die at every call, and compare what came.

    Args:
        make: makes the source, as it would be given to `flow.source`. It ends, or yields batches
            without records while it waits.
        expected: the records that are to come, some dozens, each once. Unless given those that come
            when nothing dies, in the same order; where what is read cannot be read again, they have
            to be given.
        begin: brings what is read to where it was at the beginning. Called before each job.
        every_call: whether a job is played for each call of the source: the process dies there.
        examples: how many jobs are played besides, whose processes die anywhere.
        seed: play the one job that an earlier failure named.

    Raises:
        AssertionError: a record is missing, or came twice, or a process that went on read something
            else. The message says what was done.
    """
    given = None if expected is None else [*expected]
    play = _ReadPlay(make, given, begin or (lambda: None))
    if seed is not None:
        play(seed, ())
        return
    calls = play(0, (0,))
    for at in range(1, calls + 1) if every_call else ():
        play(0, (at,))
    first = random.SystemRandom().getrandbits(32) | 1
    for number in range(first, first + examples):
        play(number, ())


class _ReadPlay:
    """Plays jobs. expected: what is to come; None: what came in the first one."""

    def __init__(
        self, make: Callable[[], Any], expected: list[Any] | None, begin: Callable[[], object]
    ) -> None:
        self._make, self._expected, self._begin = make, expected, begin
        self._first: list[list[Any]] | None = None

    def __call__(self, seed: int, deaths: Sequence[int]) -> int:
        """Play one job; how many calls there were."""
        self._begin()
        where = Where("check_source", 0)
        source = source_of(self._make(), where)
        if source.recorded and self._expected is None:
            raise AssertionError("check_source: what cannot be read again needs expected=")
        if self._expected is None and self._first is None and seed:
            self(0, (0,))  # what comes when nothing dies
            self._begin()
        schema = record_of(source, where, {})
        job = _ReadJob(source, schema, seed, deaths, self._expected)
        try:
            job.run()
        except Exception as error:
            raise AssertionError(job.story(f"raised {error!r}")) from error
        self._judge(job)
        return job.fuse.burnt

    def _judge(self, job: _ReadJob) -> None:
        found = [job.records(split.name) for split in job.splits]
        if self._expected is None:
            self._first = self._first or found
            if found != self._first:
                raise AssertionError(job.story(f"came: {found}, not {self._first}"))
            return
        came = Counter(repr(record) for records in found for record in records)
        wanted = Counter(map(repr, self._expected))
        if came != wanted:
            lacks, more = [*(wanted - came).elements()], [*(came - wanted).elements()]
            raise AssertionError(job.story(f"lacks {lacks[:5]}, has too much {more[:5]}"))


@dataclass(frozen=True)
class _ReadCut:
    """A checkpoint of the source. A split has its position, its watermark, and what is known of its
    senders."""

    epoch: int
    splits: dict[str, tuple[int, int, Senders]]


class _ReadJob:
    """One job: what is decided in it, and the processes that have read."""

    def __init__(
        self,
        source: Source[Any],
        schema: RecordSchema,
        seed: int,
        deaths: Sequence[int],
        expected: list[Any] | None,
    ) -> None:
        self.source, self.schema, self.seed, self.deaths = source, schema, seed, deaths
        self.rng = random.Random(seed)
        self.fuse = Fuse(deaths or [self.rng.randrange(1, 60) for _ in range(4)])
        self.wanted = None if expected is None else len(expected)
        self.splits = [*source.splits()]
        self.every = 2 if deaths else self.rng.choice((1, 2, 3))
        hears = type(source).stored is not Source.stored or not source.recorded
        self.lasting = not deaths and hears and self.rng.random() < 0.6
        self.boundaries: dict[tuple[str, int], Boundary] = {}
        self.out: dict[tuple[str, int], list[Any]] = {}
        begun = {s.name: (s.begin, BEFORE_ALL, ()) for s in self.splits}
        self.committed = self.saved = _ReadCut(0, begun)  # type: ignore[arg-type]
        self.told: list[str] = []
        self.number = 0
        self.asleep: list[_ReadProcess] = []
        self.life = self.new()

    def new(self) -> _ReadProcess:
        """A process that goes on from the newest checkpoint, with a copy of the source."""
        self.number += 1
        return _ReadProcess(self, pickle.loads(pickle.dumps(self.source)), f"p{self.number}")

    def run(self) -> None:
        """Play to the end."""
        while not self.life.over:
            try:
                self.life.step()
            except Killed:
                self._strike()
            self._wake()
        self.fuse.lit = False
        for process in (self.life, *self.asleep):
            process.die()

    def _strike(self) -> None:
        loss = self.lasting and self.saved.epoch and self.rng.random() < 0.4
        self.told.append("all is lost" if loss else f"{self.life.name} dies")
        if loss:
            for process in (self.life, *self.asleep):
                process.die()
            self.asleep.clear()
            self.committed = self.saved
            last = self.saved.epoch
            self.boundaries = {at: b for at, b in self.boundaries.items() if at[1] <= last}
            self.out = {at: rows for at, rows in self.out.items() if at[1] <= last}
        elif self.rng.random() < 0.5:
            self.asleep.append(self.life)
        else:
            self.life.die()
        self.life = self.new()

    def _wake(self) -> None:
        if not self.asleep or self.rng.random() > 0.2:
            return
        sleeper = self.rng.choice(self.asleep)
        try:
            sleeper.step()
        except (Exception, Killed):
            self.asleep.remove(sleeper)
            sleeper.die()

    def publish(self, name: str, epoch: int, rows: list[Any]) -> None:
        """Take the records of an epoch of a split.

        Raises:
            AssertionError: another process has published others.
        """
        before = self.out.setdefault((name, epoch), rows)
        if repr(before) != repr(rows):
            raise AssertionError(f"{name}, epoch {epoch}: {rows}, and before it was {before}")

    def came(self) -> int:
        """How many records have come."""
        return sum(map(len, self.out.values()))

    def records(self, name: str) -> list[Any]:
        """The records of a split."""
        epochs = sorted(epoch for split, epoch in self.out if split == name)
        return [record for epoch in epochs for record in self.out[name, epoch]]

    def story(self, why: str) -> str:
        """What was done, for a failure."""
        again = (
            f"seed={self.seed}"
            if self.seed
            else f"the job whose call {self.deaths[0]} is the last of a process"
        )
        shown = "\n  ".join(self.told[-40:])
        return f"check_source, {again}: {why}. What was done last:\n  {shown}"


@dataclass(eq=False)
class _ReadProcess:
    """A process that reads all splits, and its life: one step is a batch or an epoch."""

    job: _ReadJob
    source: Source[Any]
    name: str
    epoch: int = 0
    over: bool = False
    silent: int = 0
    opened: bool = False
    splits: list[ArrivalSplit] = field(default_factory=list)
    readers: dict[str, SplitReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cut = self.job.committed
        self.epoch = cut.epoch
        for split in self.job.splits:
            at, watermark, senders = cut.splits[split.name]
            given = (split.name, split.name, None, 0, None, at, watermark)
            if self.source.recorded:
                live = LiveSplit(self.job.schema, self.name, *given)
                live.knows(senders)
                self.splits.append(live)
            else:
                self.splits.append(ArrivalSplit(*given))

    def step(self) -> None:
        """Read a batch of a split, or end an epoch."""
        if not self.opened:
            self.opened = True
            self._call("open")
            context = SourceContext("run", NAME, "127.0.0.1", False, LocalDirectory())
            self.source.open(context)
        left = [s for s in self.splits if not s.done]
        rng = self.job.rng
        if left and not self._enough() and rng.random() < 0.7:
            self._read(rng.choice(left))
        else:
            self._end_epoch()

    def die(self) -> None:
        """Close what the system closes when a process ends."""
        for reader in self.readers.values():
            reader.close()

    def _call(self, what: str) -> None:
        """Count a call of the source."""
        self.job.told.append(f"{self.name}: {what}")
        self.job.fuse.burn()

    def _reader(self, split: ArrivalSplit) -> SplitReader:
        if split.name not in self.readers:
            self._call(f"read({split.name}, {split.position})")
            source, live = self.source, split if isinstance(split, LiveSplit) else None
            reader = SplitReader(
                split.name, NAME, self.job.schema, source.read, split.position,
                None if live is None else source,
            )  # fmt: skip
            self.readers[split.name] = reader
            if live is not None:
                reader.knows({sender: last for sender, last, _ in live.senders})
                reader.position = 0
        return self.readers[split.name]

    def _read(self, split: ArrivalSplit) -> None:
        reader = self._reader(split)
        self._call(f"next of {split.name}")
        before = reader.position
        rows = reader.next(empty=True)
        if rows is None:
            split.done = True
            return
        self.silent = 0 if len(rows) else self.silent + 1
        if self.silent > SILENT_MOST:
            raise AssertionError(f"{self.job.came()} records have come, and no more do")
        if reader.sent is not None:
            sender, sequence, each = reader.sent
            split.add(reader.position, rows, Sent(sender, sequence, 0, each))
        elif len(rows) or (reader.more and reader.position != before):
            split.add(reader.position, rows, *reader.more)

    def _enough(self) -> bool:
        """Whether all has come that is to come, and nothing more for a while."""
        wanted = self.job.wanted
        return wanted is not None and self.job.came() >= wanted and self.silent >= SILENT

    def _end_epoch(self) -> None:
        job, epoch = self.job, self.epoch + 1
        ended = True
        for split in self.splits:
            held = job.boundaries.get((split.name, epoch))
            if held is None:
                held = job.boundaries.setdefault((split.name, epoch), split.wanted())
            while not split.reaches(held) and not split.done:
                self._read(split)
            self._take(split, epoch, held)
            ended = ended and held.ended
        self.epoch = epoch
        last = ended or self._enough()
        if self is job.life and (last or epoch % job.every == 0):
            self._checkpoint(last)
        self.over = last and self is job.life

    def _take(self, split: ArrivalSplit, epoch: int, held: Boundary) -> None:
        live = split if isinstance(split, LiveSplit) else None
        before = (live.acknowledged, live.ended) if live is not None else None
        rows = split.take(held)
        records = [r for part in rows for r in Batch._of(part).records()]
        self.job.publish(split.name, epoch, records)
        if live is None or before is None:
            return
        if live.acknowledged is not None and live.acknowledged != before[0]:
            self._call(f"acknowledge({live.acknowledged})")
            self.readers[split.name].acknowledge(live.acknowledged)
        if live.heard and split.name in self.readers:
            self._call("knows")
            self.readers[split.name].knows(live.heard)
        live.heard = {}
        if live.ended and not before[1]:
            tell_end(self.source, NAME, split.name)

    def _checkpoint(self, last: bool) -> None:
        """Commit a checkpoint, and save it, or not yet; tell the source."""
        job = self.job
        job.committed = _ReadCut(
            self.epoch,
            {s.name: (s.position, s.watermark, getattr(s, "senders", ())) for s in self.splits},
        )
        if last or not job.lasting or job.rng.random() < 0.6:
            job.saved = job.committed
            self._call("commit")
            positions = {name: at for name, (at, _, _) in job.saved.splits.items()}
            self.source.commit(positions)
            for name, (_, _, senders) in job.saved.splits.items():
                if senders:
                    self._call("stored")
                    known = {sender: sequence for sender, sequence, _ in senders}
                    self.source.stored(Split(name), known)
