"""Wrong windows and timers are refused, with file and line.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import raystream as rs
from tests.api.refusals import Alarm, Build, Cases, Counted, Tally, Word, Words, check, stream

CASES = Cases()
refused = CASES.refused


# ---------------------------------------------------------------- operators with windows


@refused(r"a windowed operator has `process\(record, state\)` and `close")
def window_without_close() -> None:
    @rs.operator(key="word", window=rs.tumbling(seconds=1))  # here
    def count(word: Word, tally: Tally) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused("it has `close`, but no window=")
def close_without_window() -> None:
    @rs.operator(key="word")  # here
    class Count:
        def process(self, word: Word, tally: Tally) -> None: ...
        def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
            yield Counted(key, tally.n)

    stream(Word).through(Count())


@refused("a windowed operator has no timers")
def window_with_timer() -> None:
    @rs.operator(key="word", window=rs.tumbling(seconds=1))  # here
    class Count:
        def process(self, word: Word, alarm: Alarm) -> None: ...
        def close(self, key: str, window: rs.Window, alarm: Alarm) -> Iterator[Counted]:
            yield Counted(key, 0)

        def timer(self, key: str, time: int, alarm: Alarm) -> Iterator[Counted]:
            yield Counted(key, 0)

    stream(Word).through(Count())


@refused(r"a record may join two sessions: add merge")
def session_without_merge() -> None:
    @rs.operator(key="word", window=rs.session(gap=1))  # here
    class Count:
        def process(self, word: Word, tally: Tally) -> None: ...
        def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
            yield Counted(key, tally.n)

    stream(Word).through(Count())


@refused(r"time 'time' is not a field of Counted(.|\n)*Say which of them: @rs.operator")
def window_without_time() -> None:
    @rs.operator(key="word", window=rs.tumbling(seconds=1))  # here
    class Count:
        def process(self, counted: Counted, tally: Tally) -> None: ...
        def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
            yield Counted(key, tally.n)

    stream(Counted).through(Count())


@refused("close(.|\n)*Words")
def close_of_another_state() -> None:
    @rs.operator(key="word", window=rs.tumbling(seconds=1))  # here
    class Count:
        def process(self, word: Word, tally: Tally) -> None: ...
        def close(self, key: str, window: rs.Window, words: Words) -> Iterator[Counted]:
            yield Counted(key, len(words.words))

    stream(Word).through(Count())  # type: ignore[call-overload]


@refused("close(.|\n)*key")
def close_of_another_key() -> None:
    @rs.operator(key="word", window=rs.tumbling(seconds=1))  # here
    class Count:
        def process(self, word: Word, tally: Tally) -> None: ...
        def close(self, key: int, window: rs.Window, tally: Tally) -> Iterator[Counted]:
            yield Counted("", key)

    stream(Word).through(Count())


# ---------------------------------------------------------------- lengths of windows


@refused(r"\(seconds=0\): must be above 0 and finite")
def an_empty_window() -> None:
    rs.tumbling(seconds=0)  # here


@refused(r"session\(gap=inf\): must be above 0 and finite")
def an_endless_gap() -> None:
    rs.session(gap=float("inf"))  # here


@refused(r"tumbling\(seconds=1, days=1\): give one of seconds, days, weeks, months")
def two_lengths_of_a_window() -> None:
    rs.tumbling(seconds=1, days=1)  # here


@refused("there is no such time zone")
def a_zone_that_is_none() -> None:
    rs.sliding(seconds=2, every=1, zone="Middle/Earth")  # here


@refused("a whole number, from 1")
def a_part_of_a_month() -> None:
    rs.tumbling(months=0.5)  # type: ignore[arg-type]  # here


# ---------------------------------------------------------------- timers


@refused("timers need both a method(.|\n)*rs.Timer")
def timer_without_field() -> None:
    @rs.operator(key="word")  # here
    class Count:
        def process(self, word: Word, tally: Tally) -> None: ...
        def timer(self, key: str, time: int, tally: Tally) -> Iterator[Counted]:
            yield Counted(key, 0)

    stream(Word).through(Count())


@refused("timers need both a method(.|\n)*rs.Timer")
def field_without_timer() -> None:
    @rs.operator(key="word")  # here
    def count(word: Word, alarm: Alarm) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


# The cases are collected by the decorators above, so the test comes after them.


@pytest.mark.parametrize(("build", "message"), CASES)
def test_it_is_refused_with_file_and_line(build: Build, message: str) -> None:
    check(build, message)
