"""What is no operator, and operators with wrong arguments or emissions, are refused.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import pytest

import raystream as rs
from tests.api.refusals import Build, Cases, Counted, Line, Tally, Word, check, stream

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


@refused("`timer` is async, and nobody awaits it")
def an_async_method() -> None:
    @rs.operator(key="word")  # here
    class Waiting:
        def process(self, word: Word, tally: Tally) -> Iterator[Word]:
            yield word

        async def timer(self, key: str, time: int, tally: Tally) -> AsyncIterator[Word]:
            yield Word("")

    stream(Word).through(Waiting())


@refused("keeps no state")
def an_async_function_with_state() -> None:
    @rs.operator(key="word")  # here
    async def wait(word: Word, tally: Tally) -> list[Word]:
        return [word]

    stream(Word).through(wait)  # type: ignore[call-overload]


@refused("concurrency= is of operators that ask the world")
def options_of_others() -> None:
    @rs.operator(concurrency=3)  # here
    def plain(word: Word) -> Iterator[Word]:
        yield word

    stream(Word).through(plain)


@refused("with batch= it takes a list of records")
def a_batch_that_is_no_list() -> None:
    @rs.operator(recorded=True, batch=3)  # here
    def ask(word: Word) -> list[Word]:
        return [word]

    stream(Word).through(ask)


@refused("its return annotation names no records")
def answers_that_are_no_records() -> None:
    @rs.operator(recorded=True)  # here
    def ask(word: Word) -> int:
        return 1

    stream(Word).through(ask)  # type: ignore[call-overload]


@refused("an operator that asks the world has no compiled=True")
def asks_compiled() -> None:
    @rs.operator(recorded=True, compiled=True)  # here
    def ask(word: Word) -> Iterator[Word]:
        yield word

    stream(Word).through(ask)


# ---------------------------------------------------------------- what it takes


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


@refused("the annotation 'Wrod' is not known where it is used")
def an_unknown_annotation() -> None:
    @rs.operator()  # here
    def count(word: Wrod) -> Iterator[Word]:  # type: ignore[name-defined]  # noqa: F821
        yield word

    stream(Word).through(count)


@refused("it takes 'str', which is not a record")
def it_takes_text() -> None:
    @rs.operator()  # here
    def length(word: str) -> Iterator[Word]:
        yield Word(0, word)

    stream(Word).through(length)


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


@refused("the second argument is a state row, and int is no rs.State")
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


# ---------------------------------------------------------------- what it emits


@refused("has no return annotation(.|\n)*Iterator")
def no_return() -> None:
    @rs.operator()  # here
    def count(word: Word):  # type: ignore[no-untyped-def]
        yield word

    stream(Word).through(count)


@refused("returns a Word; operators yield(.|\n)*Iterator.Word.")
def it_returns() -> None:
    @rs.operator()  # here
    def first(word: Word) -> Word:
        return word

    stream(Word).through(first)


@refused("returns <class 'int'>, not Iterator")
def it_returns_a_number() -> None:
    @rs.operator()  # here
    def length(word: Word) -> int:
        return len(word.word)

    stream(Word).through(length)


@refused("it yields 'str', which is not a record")
def it_yields_text() -> None:
    @rs.operator()  # here
    def length(word: Word) -> Iterator[str]:
        yield word.word

    stream(Word).through(length)


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


@refused("`count` has a `yield` and returns a value, which would be lost")
def a_generator_that_returns_records() -> None:
    @rs.operator  # here
    def count(line: Line) -> Iterator[Line]:
        if line.text.isupper():
            return [line]  # type: ignore[return-value]
        yield line

    stream(Line).through(count)


@refused("`close` has a `yield` and returns a value")
def a_close_that_does_both() -> None:
    @rs.operator(key="text", window=rs.tumbling(seconds=1), time="maybe")  # here
    class Count:
        def process(self, line: Line, tally: Tally) -> None: ...
        def close(self, key: str, window: rs.Window, tally: Tally) -> Iterator[Counted]:
            if not tally.n:
                return [Counted(key, 0)]  # type: ignore[return-value]
            yield Counted(key, tally.n)

    stream(Line).through(Count())


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
