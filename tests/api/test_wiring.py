"""Flows that are wired wrongly are refused when they are built, with file and line.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import GraphError
from raystream.testing import Collect
from tests.api.refusals import Build, Cases, Number, Tally, Word, check, stream

CASES = Cases()
refused = CASES.refused


# ---------------------------------------------------------------- wiring


@rs.operator()
def same_word(word: Word) -> Iterator[Word]:
    yield word


@rs.operator(key="time")
def both_types(either: Word | Number, tally: Tally) -> Iterator[Word]:
    yield Word(either.time, "")


class Untimed(NamedTuple):
    word: str


class Flag(NamedTuple):
    time: int
    word: bool


@refused(r"the key 'word' is of different types in its inputs: bool, int(.|\n)*Declare it alike")
def another_type_of_integer_as_key() -> None:
    """Rows come back from a checkpoint with the keys of one of them: 300 would be True."""

    @rs.operator(key="word")  # here
    def count(either: Flag | Number, tally: Tally) -> Iterator[Word]:
        yield Word(0, "")

    stream(Flag, Number).through(count)


class Apart:
    class Key(IntEnum):
        A = 1


class Key(IntEnum):
    A = 1


class Named(NamedTuple):
    word: Key


class Nested(NamedTuple):
    word: Apart.Key


@refused(r"different types in its inputs: tests.*test_wiring.Apart.Key, tests.*test_wiring.Key\n")
def two_enumerations_as_key() -> None:
    @rs.operator(key="word")  # here
    def count(either: Named | Nested, tally: Tally) -> Iterator[Word]:
        yield Word(0, "")

    stream(Named, Nested).through(count)


@refused(r"same_word takes Word, but this stream carries Number(.|\n)*stream\[Word\]")
def another_type() -> None:
    stream(Number).through(same_word)  # here


@refused("both_types takes Number, which this stream does not carry(.|\n)*Unite")
def a_type_is_lacking() -> None:
    stream(Word).through(both_types)  # here


@refused("same_word has no window, so no record is late for it")
def late_without_window() -> None:
    stream(Word).through(same_word, late=True)  # here


@rs.operator(key="word")
def silent(word: Word, tally: Tally) -> None:
    tally.n += 1


@refused("silent emits nothing")
def a_sink_of_nothing() -> None:
    stream(Word).through(silent).to(rs.io.console())  # here


@refused("silent emits nothing")
def an_operator_of_nothing() -> None:
    stream(Word).through(silent).through(same_word)  # here


@refused("silent emits nothing")
def a_union_with_nothing() -> None:
    words = stream(Word)
    words | words.through(silent)  # here


OTHER = NamedTuple("Word", [("time", int)])  # noqa: UP014 - called as another is


@refused(r"could not tell tests\.api\.refusals\.Word from .*test_wiring\.Word: (.|\n)*rename")
def namesakes() -> None:
    flow = rs.Flow("test")
    words = flow.source(rs.io.iterable([], Word)) | flow.source(rs.io.iterable([], OTHER))
    words.to(Collect())  # here


@refused(r"the sinks csvparts \(.*:\d+\) and csvparts-2 write to the same folder(.|\n)*\(a \| b\)")
def two_sinks_on_one_folder() -> None:
    words = stream(Word)
    words.to(rs.io.csv("no-such/rows"))
    words.to(rs.io.csv("no-such/../no-such/rows/"))  # here


@refused(r"the sinks collect \(.*:\d+\) and collect-2 are one object(.|\n)*\(a \| b\)")
def one_sink_for_two() -> None:
    words, sink = stream(Word), Collect()
    words.to(sink)
    words.through(same_word).to(sink)  # here


@refused("two nodes are named 'twice'")
def the_same_name() -> None:
    words = stream(Word)
    words.through(same_word, name="twice")
    words.through(same_word, name="twice")  # here


@refused("these streams belong to two flows")
def two_flows() -> None:
    stream(Word) | stream(Word)  # here


@refused(r"Word of Word is on both sides of \|, so each record would come twice")
def united_with_itself() -> None:
    words = stream(Word)
    words | words  # here


@refused("this stream carries no Number(.|\n)*It carries Word")
def a_branch_that_is_not() -> None:
    stream(Word)[Number]  # here


@refused("object is not a sink: it has no `write`")
def no_sink() -> None:
    stream(Word).to(object())  # type: ignore[arg-type]  # here


class Deaf:
    """A sink with methods that cannot be called as sinks are."""

    def commit(self, epoch: int) -> None: ...


@refused(r"Bare.write takes \(batch\), but a sink is called with \(epoch, keys, batch\)(.|\n)*"
         r"Write it as def write\(self, epoch, keys, batch\)")  # fmt: skip
def a_sink_that_takes_a_batch_alone() -> None:
    class Bare(Deaf):
        def write(self, batch: rs.Batch[Word]) -> None: ...

    stream(Word).to(Bare())  # type: ignore[arg-type]  # here


@refused(r"Closes.close takes \(epoch\), but a sink is called with \(\)")
def a_sink_that_is_told_more_at_its_end() -> None:
    class Closes(Deaf):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Word]) -> None: ...
        def close(self, epoch: int) -> None: ...

    stream(Word).to(Closes())  # here


@refused(r"Whole.read takes \(split\), but a source is called with \(split, position\)")
def a_source_without_positions() -> None:
    class Whole:
        def splits(self) -> list[rs.Split]:
            return []

        def read(self, split: rs.Split) -> Iterator[tuple[int, rs.Batch[Word]]]:
            yield from ()

    rs.Flow("test").source(Whole())  # type: ignore[arg-type]  # here


@refused(r"run\(\) has no option 'spare'(.|\n)*Is it spares=\?")
def an_option_that_is_not() -> None:
    rs.Flow("test").run(spare=1)  # here


@refused(r"run\(\) has no option 'xyzzy'(.|\n)*It has cluster, instances, ")
def an_option_that_is_like_no_other() -> None:
    rs.Flow("test").run(xyzzy=1)  # here


@refused("object is not a source: it has no `splits`")
def no_source() -> None:
    rs.Flow("test").source(object())  # type: ignore[arg-type]  # here


@refused("Untyped.read does not say what it yields")
def a_source_without_type() -> None:
    class Untyped:
        def splits(self) -> list[rs.Split]:
            return []

        def read(self, split: rs.Split, position: int):  # type: ignore[no-untyped-def]
            yield from ()

    rs.Flow("test").source(Untyped())  # here


@refused("int is not a record")
def a_source_of_numbers() -> None:
    @dataclass
    class Numbers:
        record = int

        def splits(self) -> list[rs.Split]:
            return []

        def read(self, split: rs.Split, position: int) -> Iterator[Any]:
            yield from ()

    rs.Flow("test").source(Numbers())  # here


@refused(r"by_time\('when'\): Word has no such integer field(.|\n)*It has time: int64, word: str")
def epochs_of_no_field() -> None:
    rs.Flow("test").source(rs.io.iterable([], Word), epochs=rs.by_time("when"))  # here


@refused(
    r"by_time\('1s'\): Word has no such(.|\n)*word: str\. A length is given by name: seconds=\.\.\."
)
def a_length_for_a_field() -> None:
    rs.Flow("test").source(rs.io.iterable([], Word), epochs=rs.by_time("1s"))  # here


class Fractions(NamedTuple):
    time: float


@refused(
    r"Fractions has no such integer field(.|\n)*time: float64\.\n(.|\n)*timestamp\(unit=\"s\"\)"
    r"(.|\n)*stream\.timed\('time'\)"
)
def epochs_of_a_field_that_is_no_time() -> None:
    rs.Flow("test").source(rs.io.iterable([], Fractions), epochs=rs.by_time("time"))  # here


@refused(
    r"by_arrival\('when'\): Word has no such integer field(.|\n)*It has time: int64, word: str"
)
def arrivals_of_no_field() -> None:
    rs.Flow("test").source(rs.io.iterable([], Word), epochs=rs.by_arrival("when"))  # here


@refused(r"by_time\(seconds=0\): must be above 0")
def empty_epochs() -> None:
    rs.by_time(seconds=0)  # here


@refused(r"by_time\(seconds='5'\) is no length of time")
def seconds_in_words() -> None:
    rs.by_time(seconds="5")  # type: ignore[arg-type]  # here


@refused(r"by_time\(origin='now'\): must be a value of 'at', which is an integer field")
def an_origin_in_words() -> None:
    rs.by_time("at", origin="now")  # type: ignore[arg-type]  # here


@refused(r"by_time\(speed=-1\): must be above 0")
def backwards() -> None:
    rs.by_time(speed=-1)  # here


@refused("disorder=-1.*: must be not below 0")
def negative_disorder() -> None:
    rs.by_time(disorder=-1)  # here


@refused(r"by_arrival\(seconds=0\): must be above 0")
def empty_arrivals() -> None:
    rs.by_arrival(seconds=0)  # here


@refused("whether a split is idle is decided at the end of an epoch")
def idle_without_a_clock() -> None:
    rs.by_arrival(seconds=float("inf"), idle=5)  # here


@refused(r"by_arrival\(idle=0\): must be above 0")
def idle_at_once() -> None:
    rs.by_arrival(idle=0)  # here


@refused('by_arrival.all_idle=True.: it is "stay" or "advance"')
def idle_by_a_flag() -> None:
    rs.by_arrival(idle=5, all_idle=True)  # type: ignore[arg-type]  # here


@refused("no record is too far ahead unless you say by how much")
def ahead_of_nothing() -> None:
    rs.Flow("test").source(rs.io.iterable([], Word), ahead=True)  # type: ignore[call-overload]  # here


@refused("by_time.ahead='drop'.: no record is too far ahead")
def drops_nothing() -> None:
    rs.by_time(ahead="drop")  # here


@refused("by_arrival.max_ahead='a day'. is no length of time")
def ahead_in_words() -> None:
    rs.by_arrival(max_ahead="a day")  # here


@refused("no split is idle unless you say after how long")
def advance_without_idle() -> None:
    rs.by_arrival(all_idle="advance")  # here


@refused("has no integer field 'time', so there is no watermark")
def idle_without_a_time() -> None:
    rs.Flow("test").source(rs.io.iterable([], Untimed), epochs=rs.by_arrival(idle=5))  # here


@refused("key_groups=0: from 1 to 32768")
def no_key_groups() -> None:
    rs.Flow("test", key_groups=0)  # here


@refused("time_unit='m': one of s, ms, us, ns")
def an_unknown_unit() -> None:
    rs.Flow("test", time_unit="m")  # type: ignore[arg-type]  # here


# The cases are collected by the decorators above, so the test comes after them.


@pytest.mark.parametrize(("build", "message"), CASES)
def test_it_is_refused_with_file_and_line(build: Build, message: str) -> None:
    check(build, message)


@pytest.mark.parametrize(
    ("read", "written", "refused"),
    [
        ("rows", "rows", True),
        ("rows", "rows/out", True),
        ("rows", "rows/_out", False),  # hidden names are not read
        ("rows", ".", True),
        ("rows", "out", False),
        ("rows", "rows-out", False),
        ("rows/day-1.csv", "rows", True),
        ("rows/day-1.csv", "rows/out", False),
        ("rows/*.csv", "rows", True),
        ("rows/*.csv", "rows/out", False),
        ("rows/*/*.csv", "rows/out", True),
        ("**/*.csv", "rows/out", True),
        ("rows/day-*/*.csv", "rows/out", False),
        ("linked", "rows", True),
    ],
)
def test_a_sink_writes_where_no_source_reads(
    read: str, written: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    (tmp_path / "linked").symlink_to("rows")
    for source_first in (True, False):
        flow = rs.Flow("test")
        words = flow.source(rs.io.iterable([], Word))
        build = [
            lambda flow=flow: flow.source(rs.io.csv(read, Word)),
            lambda words=words: words.to(rs.io.parquet(written)),
        ]
        build[not source_first]()
        if not refused:
            build[source_first]()
            continue
        with pytest.raises(
            GraphError, match=r"the sink parquetparts writes to .*, where the source"
        ):
            build[source_first]()


def test_places_elsewhere_are_compared_as_text() -> None:
    @dataclass
    class Bucket:
        owns: str = "s3://bucket/rows"

        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None: ...
        def commit(self, epoch: int) -> None: ...

    words = stream(Word)
    words.to(Bucket())
    words.to(Bucket("s3://bucket/others"))
    with pytest.raises(GraphError, match="write to the same folder, s3://bucket/rows"):
        words.to(Bucket("s3://bucket/rows/"))
