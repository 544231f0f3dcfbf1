"""What people write at first, and is refused with a word on what to write instead.

In each case the line that the error must name ends in `# here`.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import raystream as rs
from raystream.errors import OperatorError
from raystream.testing import Collect
from tests.api.refusals import Build, Cases, Tally, Word, check, stream

CASES = Cases()
refused = CASES.refused


@refused("its parameters must be fields of a frozen dataclass")
def parameters_that_change() -> None:
    @rs.operator()  # here
    @dataclass
    class Numbered:
        n: int = 0

        def process(self, word: Word) -> Iterator[Word]:
            self.n += 1
            yield word

    stream(Word).through(Numbered())


@refused("count has no method `process`(.|\n)*methods and functools.partial are none")
def a_method() -> None:
    class Counts:
        @rs.operator(key="word")  # here
        def count(self, word: Word, tally: Tally) -> Iterator[Word]:
            yield word

    stream(Word).through(Counts().count)


@refused("partial has no method `process`(.|\n)*Parameters are fields of a frozen dataclass")
def a_partial() -> None:
    def longer(word: Word, least: int) -> Iterator[Word]:
        yield word

    op: Any = functools.partial(longer, least=3)
    stream(Word).through(rs.operator(op))  # here


@refused("not 0 arguments(.|\n)*Before them comes `self`")
def no_self() -> None:
    @rs.operator()  # here
    class Count:
        def process(word: Word) -> Iterator[Word]:  # type: ignore[misc]
            yield word

    stream(Word).through(Count())


@refused("the argument 'tally' comes after `\\*`")
def by_name() -> None:
    @rs.operator(key="word")  # here
    def count(word: Word, *, tally: Tally) -> Iterator[Word]:
        yield word

    stream(Word).through(count)  # type: ignore[call-overload]


@refused("key=<function .*a key is the name of a field")
def a_key_that_is_computed() -> None:
    rs.operator(key=lambda word: word.word)  # type: ignore[call-overload]  # here


@refused("window=10 is no window(.|\n)*rs.tumbling")
def a_number_for_a_window() -> None:
    rs.operator(key="word", window=10)  # type: ignore[call-overload]  # here


@refused(r"Point\.x has no annotation(.|\n)*class Point\(typing\.NamedTuple\)")
def a_record_without_types() -> None:
    Point = namedtuple("Point", "x y")
    rs.Flow("test").source(rs.io.iterable([], Point))  # here


@refused("epochs=<function by_time .* does not say how to cut(.|\n)*by_arrival")
def epochs_without_parentheses() -> None:
    rs.Flow("test").source(rs.io.iterable([], Word), epochs=rs.by_time)  # type: ignore[arg-type]  # here


@refused("disorder=inf.*: must be not below 0 and finite")
def infinite_disorder() -> None:
    rs.by_time(seconds=1, disorder=float("inf"))  # here


@refused("ticks=0.001(.|\n)*at least one tick")
def ticks_that_are_a_fraction() -> None:
    rs.by_time(seconds=1, ticks=0.001)  # type: ignore[arg-type]  # here


@refused("disorder=nan.* is no length of time")
def disorder_that_is_no_number() -> None:
    rs.by_arrival(disorder=float("nan"))  # here


@refused("Collect is a class: pass an instance of it")
def a_class_for_a_sink() -> None:
    stream(Word).to(Collect)  # type: ignore[arg-type]  # here


@refused(r"is not a sink: it has no `commit`(.|\n)*class Printer\(rs.Sink\)")
def a_sink_that_is_derived_from_nothing() -> None:
    class Printer:
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Any]) -> None: ...

    stream(Word).to(Printer())  # type: ignore[arg-type]  # here


@refused("Sender.commit is an `async def`: it is called, and nobody awaits(.|\n)*asyncio.run")
def a_sink_that_is_awaited() -> None:
    class Sender(Collect):
        async def commit(self, epoch: int) -> None: ...  # type: ignore[override]

    stream(Word).to(Sender())  # here


@refused("Sender.close has a `yield`: it is called, and nobody goes through")
def a_sink_that_yields() -> None:
    class Sender(Collect):
        def close(self) -> Iterator[int]:  # type: ignore[override]
            yield 1

    stream(Word).to(Sender())  # here


@refused("is not a sink(.|\n)*rs.io.callable")
def a_function_for_a_sink() -> None:
    stream(Word).to(print)  # type: ignore[arg-type]  # here


@refused("list is not a source(.|\n)*rs.io.iterable")
def a_list_for_a_source() -> None:
    rs.Flow("test").source([Word(1, "a")])  # type: ignore[arg-type]  # here


@pytest.mark.parametrize(("build", "message"), CASES)
def test_usual_mistakes_are_refused(build: Build, message: str) -> None:
    check(build, message)


def test_an_error_of_a_call_in_an_operator_names_its_line_once() -> None:
    @rs.operator()
    def timely(word: Word) -> Iterator[Word]:
        rs.now()
        yield word

    flow = rs.Flow("timely")
    flow.source(rs.io.iterable([Word(1, "a")], Word)).through(timely).to(Collect())
    with pytest.raises(
        OperatorError, match=r"timely raised ConfigError(.|\n)*recorded=True"
    ) as told:
        flow.run()
    assert str(told.value).count(__file__) == 1
