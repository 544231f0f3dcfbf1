"""Wrong fields, keys, orders and parameters of operators are refused when the flow is built.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import pytest

import raystream as rs
from tests.api.refusals import Build, Cases, Line, Number, Tally, Word, check, stream

CASES = Cases()
refused = CASES.refused


# ---------------------------------------------------------------- fields of state rows and records


@refused(r"Bad\.n needs a default")
def a_field_without_default() -> None:
    class Bad(rs.State):  # here
        n: int


@refused(r"Bad\.n has no annotation, so it is no field(.|\n)*n: int = (.|\n)*ClassVar")
def a_field_without_annotation() -> None:
    class Bad(rs.State):  # here
        n = 0


def test_constants_and_class_variables_of_a_state_class_are_no_fields() -> None:
    class Good(rs.State):
        LIMIT = 5
        _hidden = None
        least: ClassVar[int] = 1
        n: int = 0

        def twice(self) -> int:
            return 2 * self.n

    assert (Good.LIMIT, Good.least, Good(n=3).twice()) == (5, 1, 6) and Good() == Good(n=0)


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


@refused("Bag.items: a set has no stable order")
def a_set_in_a_record() -> None:
    class Bag(NamedTuple):  # here
        items: set[int]

    @rs.operator()
    def same(bag: Bag) -> Iterator[Bag]:
        yield bag

    stream(Word).through(same)


# ---------------------------------------------------------------- state, keys, order, parameters


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


@refused(r"key 'ratio': Line.ratio: float64 cannot serve(.|\n)*key by an int")
def key_is_a_fraction() -> None:
    @rs.operator(key="ratio")  # here
    def count(line: Line, tally: Tally) -> Iterator[Line]:
        yield line

    stream(Line).through(count)


@refused(r"key 'maybe': .* cannot serve(.|\n)*takes records one by one")
def key_of_a_batch_may_be_none() -> None:
    @rs.operator(key=("text", "maybe"))  # here
    def count(lines: rs.Batch[Line], tally: rs.Rows[Tally]) -> rs.Batch[Line]:
        return lines

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


# The cases are collected by the decorators above, so the test comes after them.


@pytest.mark.parametrize(("build", "message"), CASES)
def test_it_is_refused_with_file_and_line(build: Build, message: str) -> None:
    check(build, message)
