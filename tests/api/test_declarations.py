"""Operators that are wrong as written are refused when the flow is built, with file and line.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import pytest

import raystream as rs
from tests.api.refusals import Build, Cases, Number, Tally, Word, check, stream


class Line(NamedTuple):
    text: str
    ratio: float
    maybe: int | None


class Counted(NamedTuple):
    word: str
    n: int


class Words(rs.State):
    words: list[str] = rs.field(factory=list)


class Alarm(rs.State):
    due: rs.Timer = rs.NEVER


CASES = Cases()
refused = CASES.refused


# ---------------------------------------------------------------- what is no operator


@refused("not_marked is not an operator(.|\n)*@rs.operator")
def no_mark() -> None:
    def not_marked(word: Word) -> Iterator[Word]:  # here
        yield word

    stream(Word).through(not_marked)


@refused("Unmarked is not an operator")
def an_instance_without_mark() -> None:
    class Unmarked:
        def process(self, word: Word) -> Iterator[Word]:
            yield word

    stream(Word).through(Unmarked())  # here


@refused(r"Counting is a class: pass an instance of it(.|\n)*through\(Counting\(\)\)")
def a_class() -> None:
    @rs.operator()  # here
    class Counting:
        def process(self, word: Word) -> Iterator[Word]:
            yield word

    stream(Word).through(Counting)


@refused("Empty has no method `process`")
def no_process() -> None:
    @rs.operator()  # here
    class Empty:
        pass

    stream(Word).through(Empty())


@refused("`process` is async: (.|\n)*Write def")
def an_async_method() -> None:
    @rs.operator()  # here
    class Waiting:
        async def process(self, word: Word) -> AsyncIterator[Word]:
            yield word

    stream(Word).through(Waiting())  # type: ignore[call-overload]


@refused("`wait` is async")
def an_async_function() -> None:
    @rs.operator()  # here
    async def wait(word: Word) -> list[Word]:
        return [word]

    stream(Word).through(wait)  # type: ignore[call-overload]


# ---------------------------------------------------------------- state classes


@refused(r"Bad\.n needs a default")
def a_field_without_default() -> None:
    class Bad(rs.State):  # here
        n: int


@refused(r"Bad\.n: a mutable default(.|\n)*rs\.field\(factory=list\)")
def a_mutable_default() -> None:
    class Bad(rs.State):  # here
        n: list[int] = []  # noqa: RUF012


@refused(r"Bad\.n: a mutable default(.|\n)*no stable order: declare dict\[K, None\]")
def a_set_for_default() -> None:
    class Bad(rs.State):  # here
        n: set[int] = set()  # noqa: RUF012


@refused("Bad: state rows do not inherit from other state rows")
def inherited_rows() -> None:
    class Bad(Tally):  # here
        m: int = 0


# ---------------------------------------------------------------- annotations


@refused("takes a record and, with state, a row: not 3 arguments")
def three_arguments() -> None:
    @rs.operator(key="word")  # here
    def count(word: Word, tally: Tally, other: Tally) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused("takes a record and, with state, a row: not 0 arguments")
def no_arguments() -> None:
    @rs.operator()  # here
    def count() -> Iterator[Word]:
        yield Word(0, "")

    stream(Word).through(count)


@refused("the argument 'word' has no annotation")
def no_annotation() -> None:
    @rs.operator()  # here
    def count(word) -> Iterator[Word]:  # type: ignore[no-untyped-def]
        yield word

    stream(Word).through(count)


@refused("has no return annotation(.|\n)*Iterator")
def no_return() -> None:
    @rs.operator()  # here
    def count(word: Word):  # type: ignore[no-untyped-def]
        yield word

    stream(Word).through(count)


@refused("the annotation 'Wrod' is not known where it is used")
def an_unknown_annotation() -> None:
    @rs.operator()  # here
    def count(word: Wrod) -> Iterator[Word]:  # type: ignore[name-defined]  # noqa: F821
        yield word

    stream(Word).through(count)


@refused("returns a Word; operators yield(.|\n)*Iterator.Word.")
def it_returns() -> None:
    @rs.operator()  # here
    def first(word: Word) -> Word:
        return word

    stream(Word).through(first)


@refused("is to emit Word, and has no `yield`(.|\n)*-> None")
def it_forgets_to_yield() -> None:
    @rs.operator()  # here
    def first(word: Word) -> Iterator[Word]:  # type: ignore[return]
        if word.time:
            Word(0, "")
            return None
        print(word)

    stream(Word).through(first)


@refused("timer is to emit Word, and has no `yield`")
def a_timer_forgets_to_yield() -> None:
    class Due(rs.State):
        at: rs.Timer = rs.NEVER

    @rs.operator(key="word")  # here
    class Rings:
        def process(self, word: Word, due: Due) -> None:
            due.at = word.time

        def timer(self, key: str, time: int, due: Due) -> Iterator[Word]:  # type: ignore[return]
            Word(time, key)

    stream(Word).through(Rings())


@refused("returns <class 'int'>, not Iterator")
def it_returns_a_number() -> None:
    @rs.operator()  # here
    def length(word: Word) -> int:
        return len(word.word)

    stream(Word).through(length)


@refused("it takes 'str', which is not a record")
def it_takes_text() -> None:
    @rs.operator()  # here
    def length(word: str) -> Iterator[Word]:
        yield Word(0, word)

    stream(Word).through(length)


@refused("it yields 'str', which is not a record")
def it_yields_text() -> None:
    @rs.operator()  # here
    def length(word: Word) -> Iterator[str]:
        yield word.word

    stream(Word).through(length)


@refused("the second argument is a state row, not <class 'int'>")
def state_is_a_number() -> None:
    @rs.operator(key="word")  # here
    def count(word: Word, tally: int) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused("rs.Rows goes with rs.Batch")
def rows_without_batch() -> None:
    @rs.operator(key="word")  # here
    def count(word: Word, rows: rs.Rows[Tally]) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


# ---------------------------------------------------------------- state, keys, order


@refused("it keeps state, but has no key")
def state_without_key() -> None:
    @rs.operator()  # here
    def count(word: Word, tally: Tally) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused(r"key 'wrod' is not a field of Word(.|\n)*Word has time, word")
def key_is_no_field() -> None:
    @rs.operator(key="wrod")  # here
    def count(word: Word, tally: Tally) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused("key 'ratio': Line.ratio: float64 cannot serve(.|\n)*int, bool, str or bytes")
def key_is_a_fraction() -> None:
    @rs.operator(key="ratio")  # here
    def count(line: Line, tally: Tally) -> Iterator[Line]:
        yield line

    stream(Line).through(count)


@refused("key 'maybe': .* cannot serve")
def key_may_be_none() -> None:
    @rs.operator(key=("text", "maybe"))  # here
    def count(line: Line, tally: Tally) -> Iterator[Line]:
        yield line

    stream(Line).through(count)


@refused("the key 'word' is of different types")
def key_of_two_types() -> None:
    @rs.operator(key="word")  # here
    def count(word: Word | Number, tally: Tally) -> Iterator[Word]:
        yield Word(0, "")

    stream(Word, Number).through(count)


@refused("order_by orders the records of a key, but there is no key")
def order_without_key() -> None:
    @rs.operator(order_by="time")  # here
    def count(word: Word) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused("order_by 'word': Word.word: str cannot serve(.|\n)*integer")
def order_by_text() -> None:
    @rs.operator(key="word", order_by="word")  # here
    def count(word: Word, tally: Tally) -> Iterator[Word]:
        yield word

    stream(Word).through(count)


@refused("its parameters must be fields of a frozen dataclass")
def parameters_in_init() -> None:
    @rs.operator(key="word")  # here
    class Count:
        def __init__(self, at_least: int) -> None:
            self.at_least = at_least

        def process(self, word: Word, tally: Tally) -> Iterator[Word]:
            yield word

    stream(Word).through(Count(3))


# ---------------------------------------------------------------- windows and timers


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


@refused("seconds must be above 0, not 0")
def an_empty_window() -> None:
    rs.tumbling(seconds=0)  # here


@refused("gap must be finite")
def an_endless_gap() -> None:
    rs.session(gap=float("inf"))  # here


@refused("is longer than the window")
def windows_with_gaps() -> None:
    rs.sliding(seconds=1, every=2)  # here


@refused("Bag.items: a set has no stable order")
def a_set_in_a_record() -> None:
    class Bag(NamedTuple):  # here
        items: set[int]

    @rs.operator()
    def same(bag: Bag) -> Iterator[Bag]:
        yield bag

    stream(Word).through(same)


# ---------------------------------------------------------------- batches, references, compiled


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


@refused("its state must hold numbers, but Words.words")
def list_rows() -> None:
    @rs.operator(key="word")  # here
    def same(words: rs.Batch[Word], rows: rs.Rows[Words]) -> rs.Batch[Word]:
        return words

    stream(Word).through(same)


@refused(
    r"same takes tests\.api\.refusals\.Word, but this stream carries .*carries\.<locals>\.Word"
)
def another_type_of_the_same_name() -> None:
    def carries() -> type:
        class Word(NamedTuple):
            time: int
            word: str

        return Word

    @rs.operator()
    def same(word: Word) -> Iterator[Word]:
        yield word

    stream(carries()).through(same)  # here


# The cases are collected by the decorators above, so the test comes after them.


@pytest.mark.parametrize(("build", "message"), CASES)
def test_it_is_refused_with_file_and_line(build: Build, message: str) -> None:
    check(build, message)


def test_the_mark_needs_no_parentheses() -> None:
    @rs.operator
    def same(word: Word) -> Iterator[Word]:
        yield word

    assert stream(Word).through(same)._branches[0].schema.cls is Word
    assert list(same(Word(0, "a"))) == [Word(0, "a")]
