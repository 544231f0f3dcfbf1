"""`check_sink`: does what a sink writes become exactly the records, whatever dies?

A small job is played around the sink: instances of some ranges, epochs, checkpoints, commits. At
each call of the sink its instance dies or falls asleep, and another one takes the range over; one
that fell asleep wakes later and goes on as if nothing had happened. With a durable tier the whole
job is lost at times, and goes on from a saved checkpoint with other ranges. In the end what is in
the target must be the records, each once.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from raystream.api.batch import Batch
from raystream.api.connectors import Sink, sink_of
from raystream.api.keys import key_groups as groups_of
from raystream.errors import Where, placed
from raystream.io.files.declared import batch_of_records
from raystream.schema.records import record_schema
from raystream.schema.types import KeyRange, SinkContext

GROUPS = 8


@placed
def check_sink(
    make: Callable[[], Any],
    records: Iterable[Any],
    *,
    read: Callable[[], Iterable[Any]],
    clear: Callable[[], object],
    expected: Callable[[list[Any]], Iterable[Any]] | None = None,
    every_call: bool = True,
    examples: int = 20,
    seed: int | None = None,
) -> None:
    """Run a sink in many small jobs whose instances die at every call, and compare what it made.

    Args:
        make: makes the sink, as it would be given to `stream.to`.
        records: what it is to write, of one type: some dozens, with few keys.
        read: all records that are in the target, in any order.
        clear: empties the target. Called before each job.
        expected: what is to be in the target, of the records in the order in which they come.
            Unless given all of them, or with `keyed_by` the last one of each key.
        every_call: whether a job is played for each call, some hundred times: the process of an
            instance dies there.
        examples: how many jobs are played besides, which die anywhere.
        seed: play the one job that an earlier failure named.

    Raises:
        AssertionError: a record is missing, or there twice. The message says what was done.
    """
    given = list(records)
    if not given:
        raise AssertionError("check_sink needs records to write")
    if seed is not None:
        _play(make, given, read, clear, expected, seed, ())
        return
    calls = _play(make, given, read, clear, expected, 0, (0,))
    for at in range(1, calls + 1) if every_call else ():
        _play(make, given, read, clear, expected, 0, (at,))
    first = random.SystemRandom().getrandbits(32) | 1
    for number in range(first, first + examples):
        _play(make, given, read, clear, expected, number, ())


def _play(
    make: Callable[[], Any],
    records: list[Any],
    read: Callable[[], Iterable[Any]],
    clear: Callable[[], object],
    expected: Callable[[list[Any]], Iterable[Any]] | None,
    seed: int,
    deaths: Sequence[int],
) -> int:
    """Play one job and check it; how many calls were made."""
    clear()
    rng = random.Random(seed)
    sink = sink_of(make(), Where("check_sink", 0))
    sink.accept(type(records[0]))
    job = _Job(
        sink, records, rng, deaths or [rng.randrange(1, 120) for _ in range(4)], plain=not seed
    )
    try:
        job.run()
    except Exception as error:
        raise AssertionError(job.story(seed, deaths, f"raised {error!r}")) from error
    wanted = Counter(expected(records) if expected else _last(sink, records))
    found = Counter(read())
    if found != wanted:
        lacks, more = list((wanted - found).elements()), list((found - wanted).elements())
        why = f"lacks {lacks[:5]}, has too much {more[:5]}"
        raise AssertionError(job.story(seed, deaths, why))
    return job.fuse.burnt


def _last(sink: Sink[Any], records: list[Any]) -> list[Any]:
    key = sink.keyed_by
    if not key:
        return records
    return list({tuple(getattr(r, name) for name in key): r for r in records}.values())


class Killed(BaseException):
    """The process of an instance was killed."""


class Fuse:
    """Counts calls, and kills at some of them."""

    def __init__(self, at: Iterable[int]) -> None:
        self.at = frozenset(at)
        self.burnt = 0
        self.lit = True

    def burn(self) -> None:
        """Count a call.

        Raises:
            Killed: it is one at which to kill.
        """
        if self.lit:
            self.burnt += 1
            if self.burnt in self.at:
                raise Killed


@dataclass(eq=False)
class _Instance:
    """An instance of the sink, its range, and its life: one step is one call."""

    context: SinkContext
    life: Generator[str, None, None]
    stored: int
    told: int = 0
    opened: bool = False
    done: bool = False
    connections: list[Any] = field(default_factory=list)
    """Those of a transactional sink."""

    def die(self) -> None:
        """Close what the system closes when a process ends."""
        for connection in self.connections:
            connection.close()


class _Job:
    def __init__(
        self,
        sink: Sink[Any],
        records: list[Any],
        rng: random.Random,
        deaths: Sequence[int],
        *,
        plain: bool,
    ) -> None:
        self.sink = sink
        self.rng = rng
        self.fuse = Fuse(deaths)
        self.told: list[str] = []
        self.every = 2 if plain else rng.choice((1, 2, 3))
        self.lasting = False if plain else rng.random() < 0.7
        self.repeatable = True if plain else rng.random() < 0.6
        schema = record_schema(type(records[0]))
        self.groups = self._groups(records)
        self.record = schema.cls
        self.last = 4 if plain else rng.randrange(3, 9)
        self.epochs = self._cut(list(enumerate(records)), 0)
        self.run_name, self.number, self.generation = "run", 1, 0
        self.resumed = self.saved_by = ""
        self.committed = self.saved = 0
        self.instances: list[_Instance] = []
        self.asleep: list[_Instance] = []
        self._begin(2 if plain else rng.choice((1, 2, 3)))

    def _groups(self, records: list[Any]) -> list[int]:
        """The key group of each record."""
        key = self.sink.keyed_by
        if not key:
            return [self.rng.randrange(GROUPS) for _ in records]
        columns = [[getattr(r, name) for r in records] for name in key]
        return [int(g) for g in groups_of(*columns, groups=GROUPS)]

    def _cut(self, records: list[tuple[int, Any]], after: int) -> dict[int, list[tuple[int, Any]]]:
        """Records in the order in which they come, as epochs after a checkpoint. The last epochs
        have none, nor have some others."""
        most = max(self.last, after + 1)
        cuts = sorted(self.rng.randrange(after + 1, most + 1) for _ in records)
        self.last = most
        found: dict[int, list[tuple[int, Any]]] = {}
        for epoch, record in zip(cuts, records, strict=True):
            found.setdefault(epoch, []).append(record)
        return found

    # ------------------------------------------------------------ instances

    def _begin(self, number: int) -> None:
        bounds = sorted({0, GROUPS, *self.rng.sample(range(1, GROUPS), number - 1)})
        self.instances = [self._instance(KeyRange(lo, hi)) for lo, hi in pairwise(bounds)]

    def _instance(self, keys: KeyRange) -> _Instance:
        self.generation += 1
        context = SinkContext(
            run=self.run_name,
            operator="sink",
            keys=keys,
            started=None,
            origin=0,
            speed=None,
            committed=self.committed,
            resumed=self.resumed,
            lasting=self.lasting,
            generation=self.generation,
            number=self.number if self.lasting else 0,
            job="check",
            program="program",
            repeatable=self.repeatable,
        )
        instance = _Instance(context, iter(()), self.committed)  # type: ignore[arg-type]
        instance.life = self._life(instance)
        return instance

    def _life(self, me: _Instance) -> Generator[str, None, None]:
        sink, context, epochs = copy.copy(self.sink), me.context, self.epochs
        if callable(getattr(sink, "connect", None)):
            _watch(sink, self.fuse, me.connections)
        last = self.last
        yield "open"
        sink.open(context)
        yield "already_there"
        written = list(sink.already_there())
        me.opened = True
        for epoch in range(context.committed + 1, last + 1):
            for keys in _left(context.keys, written, epoch):
                if batch := self._batch(epochs.get(epoch, []), keys):
                    yield "write"
                    sink.write(epoch, keys, batch)
            yield "end_epoch"
            sink.end_epoch(epoch, more=epoch < last and self.rng.random() < 0.5)
            if epoch % self.every == 0 or epoch == last:
                yield "prepare"
                sink.prepare(epoch)
                me.stored = epoch
                self._commit()
            if (upto := self._published()) > me.told:
                yield "commit"
                sink.commit(upto)
                me.told = upto
        while self._published() < last:
            yield "waits"
        if me.told < last:
            yield "commit"
            sink.commit(last)
        yield "close"
        sink.close()
        me.done = True

    def _batch(self, records: list[tuple[int, Any]], keys: KeyRange) -> Batch[Any] | None:
        mine = [(self.groups[n], n, r) for n, r in records if keys.holds(self.groups[n])]
        rows = [r for _, _, r in sorted(mine, key=lambda each: each[:2])]
        return batch_of_records(self.record, rows, str) if rows else None

    def _commit(self) -> None:
        """Commit the newest checkpoint that all instances have stored. A new one is saved, or not
        yet. The run that saved a checkpoint stays its run: a later run does not save it again."""
        self.committed = max(self.committed, min(i.stored for i in self.instances))
        new = self.committed > self.saved
        if new and (self.committed == self.last or self.rng.random() < 0.6):
            self.saved, self.saved_by = self.committed, self.run_name

    def _published(self) -> int:
        return self.saved if self.lasting else self.committed

    # ------------------------------------------------------------ the play

    def run(self) -> None:
        """Play to the end."""
        while left := [i for i in self.instances if not i.done]:
            instance = self.rng.choice(left)
            try:
                self.fuse.burn()
                self._step(instance)
            except Killed:
                self._strike(instance)
            self._wake()
        self.fuse.lit = False
        while self.asleep:
            self._wake(surely=True)

    def _step(self, instance: _Instance) -> None:
        said = next(instance.life, "is over")
        if said != "waits":
            self.told.append(f"{instance.context.keys} g{instance.context.generation}: {said}")

    def _strike(self, instance: _Instance) -> None:
        """An instance dies, or falls asleep and is replaced; or all is lost."""
        loss = self.lasting and self.saved and self.rng.random() < 0.4
        self.told.append("all is lost" if loss else f"{instance.context.keys} dies")
        if loss:
            self._lose()
            return
        died = inspect.getgeneratorstate(instance.life) == inspect.GEN_CLOSED
        if not died and self.rng.random() < 0.5:
            self.asleep.append(instance)
        else:
            instance.die()
        self.instances.remove(instance)
        self.instances.append(self._instance(instance.context.keys))

    def _lose(self) -> None:
        """All instances die, or some fall asleep, and a new run goes on from the saved
        checkpoint."""
        for instance in self.instances:
            if instance.opened and self.rng.random() < 0.3:
                self.asleep.append(instance)
            else:
                instance.die()
        self.resumed, self.number = self.saved_by, self.number + 1
        self.run_name = f"run-{self.number}"
        self.committed = self.saved
        self.generation = 0
        if not self.repeatable:
            later = [r for e, rs in sorted(self.epochs.items()) if e > self.saved for r in rs]
            sooner = {e: rs for e, rs in self.epochs.items() if e <= self.saved}
            self.epochs = {**sooner, **self._cut(later, self.saved)}
        self._begin(self.rng.choice((1, 2, 3)))

    def _wake(self, *, surely: bool = False) -> None:
        """One that fell asleep goes on, once its successor has begun. It may fail."""
        if not self.asleep or not (surely or self.rng.random() < 0.3):
            return
        sleeper = self.rng.choice(self.asleep)
        keys = sleeper.context.keys
        if not all(i.opened for i in self.instances if i.context.keys.overlaps(keys)):
            return
        over = surely
        try:
            for _ in range(self.rng.randrange(1, 8)):
                self._step(sleeper)
        except (Exception, Killed):
            over = True
        if over or sleeper.done:
            self.asleep.remove(sleeper)
            sleeper.die()

    def story(self, seed: int, deaths: Sequence[int], why: str) -> str:
        """What was done, for a failure."""
        again = (
            f"seed={seed}" if seed else f"the job whose call {deaths[0]} is the last of a process"
        )
        shown = "\n  ".join(self.told[-40:])
        return f"check_sink, {again}: {why}. What was done last:\n  {shown}"


def _left(keys: KeyRange, written: Sequence[tuple[KeyRange, int]], epoch: int) -> list[KeyRange]:
    """What of a range is not written for an epoch."""
    at, found = keys.lo, []
    for other in sorted(k for k, upto in written if epoch <= upto):
        if at < other.lo:
            found.append(KeyRange(at, other.lo))
        at = max(at, other.hi)
    return [*found, KeyRange(at, keys.hi)] if at < keys.hi else found


def _watch(sink: Any, fuse: Fuse, connections: list[Any]) -> None:
    """Have also the calls of a transactional sink to its database counted, and killed."""
    connect = sink.connect

    def watched(context: SinkContext) -> Any:
        connections.append(connect(context))
        return _Watched(connections[-1], fuse)

    sink.connect = watched


class _Watched:
    """A target, or a transaction, whose calls may be the last ones of the process."""

    def __init__(self, of: Any, fuse: Fuse) -> None:
        self._of = of
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name == "transaction":
            return self._transaction
        if name == "close":
            return found

        def called(*args: Any, **named: Any) -> Any:
            self._fuse.burn()
            return found(*args, **named)

        return called

    def _transaction(self) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def watched() -> Any:
            with self._of.transaction() as tx:
                yield _Watched(tx, self._fuse)
                self._fuse.burn()  # before the commit
            self._fuse.burn()  # after it

        return watched()
