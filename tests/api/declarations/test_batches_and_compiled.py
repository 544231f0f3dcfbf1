"""Wrong batch operators, reference data and compiled operators are refused, with file and line.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import raystream as rs
from tests.api.refusals import Alarm, Build, Cases, Number, Tally, Word, Words, check, stream

CASES = Cases()
refused = CASES.refused


# ---------------------------------------------------------------- batches and reference data


@refused("an operator with `load` is keyed and takes rs.Batch")
def load_without_key() -> None:
    @rs.operator()  # here
    class Reference:
        def load(self, keys: rs.KeyRange) -> int:
            return 1

        def process(self, words: rs.Batch[Word], data: int) -> rs.Batch[Word]:
            return words

    stream(Word).through(Reference())


@refused("a batch operator takes records of one type")
def batch_of_two_types() -> None:
    @rs.operator()  # here
    def both(words: rs.Batch[Word | Number]) -> rs.Batch[Word]:
        raise NotImplementedError

    stream(Word, Number).through(both)


@refused("a batch operator returns records of one type(.|\n)*-> rs.Batch")
def batch_that_returns_nothing() -> None:
    @rs.operator()  # here
    def forget(words: rs.Batch[Word]) -> None: ...

    stream(Word).through(forget)  # type: ignore[call-overload]


@refused("a batch operator has no windows(.|\n)*per-record form")
def batch_in_windows() -> None:
    @rs.operator(key="word", window=rs.tumbling(seconds=1))  # here
    class Count:
        def process(self, words: rs.Batch[Word], rows: rs.Rows[Tally]) -> rs.Batch[Word]:
            return words

        def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Word]:
            yield Word(window.start, key)

    stream(Word).through(Count())


@refused("a batch operator has no timers(.|\n)*per-record form")
def batch_with_timers() -> None:
    @rs.operator(key="word")  # here
    class Remind:
        def process(self, words: rs.Batch[Word], rows: rs.Rows[Alarm]) -> rs.Batch[Word]:
            return words

        def timer(self, key: str, time: int, alarm: Alarm) -> Iterator[Word]:
            yield Word(time, key)

    stream(Word).through(Remind())


@refused("a batch operator has no timers")
def batch_with_a_timer_field() -> None:
    @rs.operator(key="word")  # here
    def remind(words: rs.Batch[Word], rows: rs.Rows[Alarm]) -> rs.Batch[Word]:
        return words

    stream(Word).through(remind)


@refused("its state must hold numbers, but Words.words")
def list_rows() -> None:
    @rs.operator(key="word")  # here
    def same(words: rs.Batch[Word], rows: rs.Rows[Words]) -> rs.Batch[Word]:
        return words

    stream(Word).through(same)


# ---------------------------------------------------------------- compiled


@refused("a batch function is not compiled")
def compiled_batch() -> None:
    @rs.operator(compiled=True)  # here
    def same(words: rs.Batch[Number]) -> rs.Batch[Number]:
        return words

    stream(Number).through(same)


@refused("compiled operators hold numbers, but Word.word: str")
def compiled_text() -> None:
    @rs.operator(compiled=True)  # here
    def same(word: Word) -> Iterator[Word]:
        yield word

    stream(Word).through(same)


@refused("its state must hold numbers, but Words.words")
def compiled_list() -> None:
    @rs.operator(key="word", compiled=True)  # here
    def same(number: Number, words: Words) -> Iterator[Number]:
        yield number

    stream(Number).through(same)


# The cases are collected by the decorators above, so the test comes after them.


@pytest.mark.parametrize(("build", "message"), CASES)
def test_it_is_refused_with_file_and_line(build: Build, message: str) -> None:
    check(build, message)
