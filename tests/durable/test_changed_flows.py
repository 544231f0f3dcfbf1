"""Flows that have changed when they resume: what stays goes on bit by bit, what is new begins."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import OutputError, StateError
from raystream.testing import Collect
from tests.flows import Line, Running, Word, running, running_batch, split

LINES = 40


class Broken(Exception):
    """The power is gone."""


@dataclass(frozen=True)
class Lines:
    """Splits of lines, one a second; reading breaks after so many of one."""

    names: tuple[str, ...] = ("a", "b")
    breaks: int = LINES
    late: int = 0
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split(name) for name in self.names]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for i in range(position, LINES):
            if i == self.breaks:
                raise Broken
            text = [f"{split.name}{i % 7} w{i % 5}"]
            yield i + 1, rs.Batch(Line, {"time": [i - self.late], "text": text})


class Pair(NamedTuple):
    word: str
    start: int
    end: int
    n: int


class Pairs(rs.State):
    n: int = 0


@rs.operator(key="word", window=rs.tumbling(seconds=10))
class InWindows:
    def process(self, word: Word, pairs: Pairs) -> None:
        pairs.n += 1

    def close(self, key: str, window: rs.Window, pairs: Pairs) -> Iterator[Pair]:
        yield Pair(key, window.start, window.end, pairs.n)


@dataclass
class Job:
    """A flow with a folder, made in steps."""

    top: Path
    epochs: Any = field(default_factory=lambda: rs.by_time(seconds=1))
    lines: Lines = field(default_factory=Lines)

    def __post_init__(self) -> None:
        self.flow = rs.Flow("changing", key_groups=16)
        source = self.flow.source(self.lines, epochs=self.epochs, name="lines")
        self.words = source.through(split)

    def count(self, name: str = "count", op: Any = running, to: str = "counts") -> Job:
        self.words.through(op, name=name).to(self.sink(to), name=f"to-{to}")
        return self

    def windows(self, name: str = "windows", to: str = "pairs") -> Job:
        self.words.through(InWindows(), name=name).to(self.sink(to), name=f"to-{to}")
        return self

    def archive(self, to: str = "archive", name: str = "archive") -> Job:
        self.words.to(self.sink(to), name=name)
        return self

    def sink(self, to: str) -> Any:
        return rs.io.parquet(self.top / to)

    def run(self, resume: bool | None = True, **options: Any) -> Any:
        options = {"checkpoint_every": 3, "durable": self.top / "saved"} | options
        return self.flow.run(resume=resume, **options)

    def breaks(self) -> None:
        with pytest.raises(Exception, match="Broken"):
            self.run(resume=None)

    def run_or_break(self, **options: Any) -> None:
        try:
            self.run(**options)
        except Exception as error:
            if "Broken" not in str(error):
                raise

    def checkpoint(self) -> int:
        """The epoch of the newest saved checkpoint; 0 for none."""
        saved = Saves(open_store(self.top / "saved"), "changing").newest(checksums=False).saved
        return 0 if saved is None else saved.checkpoint


def read(top: Path, name: str, record: type) -> Counter[Any]:
    return Counter(
        r for b in rs.io.read_parts(top / name, record, key_groups=16) for r in b.records()
    )


BROKEN = Lines(breaks=25)


def whole(top: Path) -> Path:
    Job(top / "whole").count().windows().archive().run(durable=None, resume=None)
    return top / "whole"


@pytest.mark.parametrize("arrival", [False, True])
@pytest.mark.parametrize("counts", [{}, {"count": 2, "lines": 2, "to-counts": 3}])
def test_a_sink_and_operators_are_added(tmp_path: Path, counts: Any, arrival: bool) -> None:
    epochs = rs.by_arrival(seconds=0.01) if arrival else rs.by_time(seconds=1)
    Job(tmp_path, epochs, BROKEN).count().breaks()
    job = Job(tmp_path, epochs).archive().count().windows()
    at = job.checkpoint()
    report = job.run(instances=counts)
    assert [n.partition(" ")[0] for n in report.notes[1:]] == ["archive", "windows", "to-pairs"]
    assert read(tmp_path, "counts", Running) == read(whole(tmp_path), "counts", Running)
    archived, all_of_it = read(tmp_path, "archive", Word), read(tmp_path / "whole", "archive", Word)
    assert archived and archived < all_of_it
    if not arrival:
        assert archived == Counter(w for w in all_of_it.elements() if w.time >= at)
        some = [p for p in read(tmp_path, "pairs", Pair) if p.start >= at]
        assert some == [p for p in read(tmp_path / "whole", "pairs", Pair) if p.start >= at]


@pytest.mark.parametrize("op", [running, running_batch])
def test_an_operator_and_its_sink_are_called_something_else(tmp_path: Path, op: Any) -> None:
    Job(tmp_path, lines=BROKEN).count("count", op).windows().breaks()
    job = Job(tmp_path).windows("by-window", to="pairs").count("tally", op)
    with pytest.raises(StateError, match="has count, windows, which") as told:
        job.run()
    assert "--rename count=tally" in told.value.hint
    report = job.run(rename={"count": "tally", "windows": "by-window"}, instances={"tally": 2})
    assert report.notes[1:] == ("by-window was called windows", "tally was called count")
    for name, record in (("counts", Running), ("pairs", Pair)):
        assert read(tmp_path, name, record) == read(whole(tmp_path), name, record)


def test_until_the_changed_flow_has_saved_a_checkpoint_nothing_is_lost(tmp_path: Path) -> None:
    """What was saved stays what it was, so that other wishes may follow a run that broke off."""
    Job(tmp_path, lines=BROKEN).count().breaks()
    for _ in range(2):
        job = Job(tmp_path, lines=Lines(breaks=26)).archive().windows().count("tally", to="other")
        with pytest.raises(Exception, match="Broken"):
            job.run(checkpoint_every=100, drop=["count", "to-counts"])
    job = Job(tmp_path).windows("pairs", to="others").archive().count("sum")
    report = job.run(rename={"count": "sum"}, instances={"sum": 3})
    assert "sum was called count" in report.notes
    assert read(tmp_path, "counts", Running) == read(whole(tmp_path), "counts", Running)
    late = Counter(w for w in read(tmp_path / "whole", "archive", Word).elements() if w.time >= 24)
    assert read(tmp_path, "archive", Word) == late


def test_what_is_removed_is_gone_and_begins_empty_when_it_comes_again(tmp_path: Path) -> None:
    Job(tmp_path, lines=BROKEN).count().archive().breaks()
    with pytest.raises(StateError, match="has count, to-counts, which"):
        Job(tmp_path).archive().run()
    less = Job(tmp_path, lines=Lines(breaks=32)).archive()
    with pytest.raises(Exception, match="Broken"):
        less.run(drop=["count", "to-counts"])
    again = Job(tmp_path).archive().count(to="more")
    report = again.run()
    assert [n.partition(" ")[0] for n in report.notes[1:]] == ["count", "to-more"]
    assert read(tmp_path, "archive", Word) == read(whole(tmp_path), "archive", Word)
    assert read(tmp_path, "more", Running)[Running("w0", 1)] == 1  # from 1 on


def test_rows_that_do_not_fit_may_go(tmp_path: Path) -> None:
    class Other(rs.State):
        many: int = 0

    @rs.operator(key="word")
    def other(word: Word, rows: Other) -> Iterator[Running]:
        rows.many += 1
        yield Running(word.word, rows.many)

    Job(tmp_path, lines=BROKEN).count().breaks()
    with pytest.raises(StateError, match=r"another state of count(.|\n)*--drop count"):
        Job(tmp_path).count(op=other).run()
    report = Job(tmp_path).count(op=other).run(drop=["count"])
    assert report.notes[1].startswith("count begins empty in epoch")
    assert read(tmp_path, "counts", Running)[Running("w0", 1)] == 2  # again from 1 on


def test_a_new_sink_does_not_touch_what_another_wrote(tmp_path: Path) -> None:
    Job(tmp_path, lines=BROKEN).count().archive().breaks()
    with pytest.raises(OutputError, match=r"holds output of run .*(.|\n)*--rename OLD=NEW"):
        Job(tmp_path).count().archive(name="files").run(drop=["archive"])
    Job(tmp_path).count().archive(name="files").run(rename={"archive": "files"})
    assert read(tmp_path, "archive", Word) == read(whole(tmp_path), "archive", Word)


@pytest.mark.parametrize("arrival", [False, True])
def test_a_new_source_begins_and_what_is_older_is_late(tmp_path: Path, arrival: bool) -> None:
    """The new one has the times of the first: half of its lines are of windows that are closed."""
    epochs = rs.by_arrival(seconds=0.01) if arrival else rs.by_time(seconds=1)

    def joined(lines: Lines, more: Lines | None) -> rs.Flow:
        job = Job(tmp_path, epochs, lines)
        words = job.words
        if more is not None:
            words = words | job.flow.source(more, epochs=epochs, name="more").through(split)
        words.through(InWindows(), name="windows").to(job.sink("pairs"), name="to-pairs")
        words.to(job.sink("archive"), name="archive")
        return job

    joined(BROKEN, None).breaks()
    job = joined(Lines(), Lines(("c",)))
    at = job.checkpoint()
    report = job.run(instances={"more": 2})
    assert any(n.startswith("more is new: it begins in epoch") for n in report.notes)
    archived = read(tmp_path, "archive", Word)
    assert archived.total() == 3 * 2 * LINES  # all of it is read
    (windows,) = (o for o in report.operators if o.name == "windows")
    counted = sum(p.n * n for p, n in read(tmp_path, "pairs", Pair).items())
    assert windows.late + counted == windows.records_in == archived.total()
    if not arrival:
        assert windows.late == 2 * (at // 10 * 10)


def test_files_that_come_later_begin(tmp_path: Path) -> None:
    Job(tmp_path, lines=BROKEN).count().breaks()
    more = Lines(("0", "a", "b", "c"))  # the splits are in other key groups now
    report = Job(tmp_path, lines=more).count().run(instances={"lines": 3})
    assert "lines has new splits" in report.notes[1] and report.notes[1].endswith(": 0, c")
    Job(tmp_path / "all", lines=more).count().run(durable=None, resume=None)
    words = [
        Counter(r.word for r in read(t, "counts", Running)) for t in (tmp_path, tmp_path / "all")
    ]
    assert words[0] == words[1]


def test_what_has_ended_gets_no_more(tmp_path: Path) -> None:
    Job(tmp_path).count().run(resume=None)
    with pytest.raises(StateError, match=r"input of count had ended(.|\n)*--fresh"):
        Job(tmp_path, lines=Lines(("a", "b", "c"))).count().run()
    Job(tmp_path).count().archive().run()
    assert read(tmp_path, "archive", Word) == Counter()


def test_another_time_later_begins_after_what_ended(tmp_path: Path) -> None:
    """One branch has ended, and a new sink is told so at once; the other goes on."""

    def branches(lines: Lines, more: bool) -> Job:
        job = Job(tmp_path, lines=lines)
        short = job.flow.source(rs.io.iterable([Line(0, "x y")], Line), epochs=job.epochs, name="x")
        counted = short.through(split).through(running, name="short")
        counted.to(job.sink("short"), name="to-short")
        if more:
            counted.to(job.sink("more"), name="to-more")
        return job.count()

    branches(BROKEN, False).breaks()
    branches(Lines(), True).run()
    assert read(tmp_path, "short", Running).total() == 2
    assert read(tmp_path, "more", Running).total() == 0
    assert read(tmp_path, "counts", Running) == read(whole(tmp_path), "counts", Running)


class Marked(Collect):
    """Keeps what its instances were told at their beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def open(self, context: Any) -> None:
        self.told.append(context)
        super().open(context)


def test_what_marks_the_output_of_a_sink_goes_along(tmp_path: Path) -> None:
    def marked(lines: Lines, *names: str) -> dict[str, tuple[str, int]]:
        job, sinks = Job(tmp_path, lines=lines), {name: Marked() for name in names}
        for name, sink in sinks.items():
            job.words.to(sink, name=name)
        job.run_or_break(rename={"one": "two"} if lines.breaks == 20 else {})
        return {name: (s.told[0].mark, s.told[0].begun) for name, s in sinks.items()}

    assert marked(Lines(breaks=10), "one") == {"one": ("one", 0)}
    assert marked(Lines(breaks=20), "two", "one") == {"two": ("one", 0), "one": ("one+", 9)}
    assert marked(Lines(breaks=30), "two", "one") == {"two": ("one", 0), "one": ("one+", 0)}


OPS: dict[str, Any] = {"a": running, "b": running_batch, "c": InWindows()}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_changes_what_stays_goes_on(tmp_path: Path, seed: int) -> None:
    """Operators come, go and change their names at each resume. What is always there makes what it
    would have made alone."""
    rng = random.Random(seed)
    epochs = rng.choice([rs.by_arrival(seconds=0.01), rs.by_time(seconds=1)])
    before: dict[str, str] = {}
    at = 0
    breaks = [*sorted(rng.sample(range(3, LINES), 3)), LINES]
    for n, end in enumerate(breaks):
        parts = {op: rng.choice(["", "2"]) for op in OPS if rng.random() < 0.5}
        job = Job(tmp_path, epochs, Lines(breaks=end))
        for op, name in parts.items():
            made = job.words.through(OPS[op], name=op + name)
            made.to(job.sink(f"{op}-{n}"), name=f"to-{op}")
        job.words.through(running, name="always").to(job.sink("counts"), name="counts")
        rename = {o + name: o + parts[o] for o, name in before.items() if o in parts}
        drop = [d for o in before if o not in parts for d in (o + before[o], f"to-{o}")]
        drop += [f"to-{o}" for o in parts if o in before]  # into another folder
        wishes: Any = {"rename": rename, "drop": drop} if at else {}
        job.run_or_break(instances={"always": rng.randint(1, 3)}, **wishes)
        at, last = job.checkpoint(), at
        before = parts if at > last else before  # until then it is a checkpoint of the flow before
    assert read(tmp_path, "counts", Running) == read(whole(tmp_path), "counts", Running)
