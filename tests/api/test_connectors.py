"""Sources and sinks that derive from the base classes, and those that have the methods only."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.api.connectors import AdaptedSink, as_given
from raystream.api.nodes import SinkNode, SourceNode
from raystream.errors import GraphError, InputError, OperatorError
from raystream.testing import Collect


class Word(NamedTuple):
    time: int
    text: str


CALLS: list[tuple[Any, ...]] = []


class Read:
    """A source by its methods."""

    record = Word
    reads = "words.txt"

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Word]]]:
        if not position:
            yield 1, rs.Batch(Word, {"time": [1], "text": ["a"]})


class Told:
    """A sink by its methods: all that one may have."""

    owns = "out"

    def open(self, context: rs.SinkContext) -> None:
        CALLS.append(("open", context.committed))

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Word]) -> None:
        CALLS.append(("write", epoch, *batch.records()))

    def prepare(self, epoch: int) -> None:
        CALLS.append(("prepare", epoch))

    def commit(self, epoch: int) -> None:
        CALLS.append(("commit", epoch))

    def close(self) -> None:
        CALLS.append(("close",))


class Least:
    """A sink by its methods: no more than one must have."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Word]) -> None:
        CALLS.append(("write", epoch, *batch.records()))

    def commit(self, epoch: int) -> None: ...


class DerivedRead(Read, rs.Source[Word]):
    """As `Read`."""


class DerivedTold(Told, rs.Sink[Word]):
    """As `Told`."""


class DerivedLeast(rs.Sink[Word]):
    """With nothing but `write`."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Word]) -> None:
        CALLS.append(("write", epoch, *batch.records()))


def calls_of(source: Any, sink: Any) -> list[tuple[Any, ...]]:
    CALLS.clear()
    flow = rs.Flow("told")
    flow.source(source, epochs=rs.by_time(seconds=1)).to(sink)
    flow.run()
    return list(CALLS)


def test_what_derives_and_what_does_not_is_called_alike() -> None:
    calls = calls_of(Read(), Told())
    assert list(dict.fromkeys(c[0] for c in calls)) == [
        "open",
        "write",
        "prepare",
        "commit",
        "close",
    ]
    assert calls_of(DerivedRead(), DerivedTold()) == calls
    written = [c for c in calls if c[0] == "write"]
    assert calls_of(Read(), Least()) == calls_of(DerivedRead(), DerivedLeast()) == written


def test_a_class_that_does_not_derive_is_adapted_where_it_joins_the_flow() -> None:
    flow = rs.Flow("x")
    read, told = Read(), Told()
    flow.source(read).to(told)
    source, sink = flow.nodes
    assert isinstance(source, SourceNode) and isinstance(sink, SinkNode)
    assert isinstance(source.source, rs.Source) and isinstance(sink.sink, rs.Sink)
    assert as_given(source.source) is read and as_given(sink.sink) is told
    assert (source.source.reads, sink.sink.owns) == ("words.txt", "out")
    assert (source.name, sink.name) == ("read", "told")


class Limited(Read):
    """A source by its methods that says more of itself, and is told when it is read."""

    read_ahead = 7
    sender_seconds = 60.0

    def open(self, context: rs.SourceContext) -> None:
        CALLS.append(("opened",))

    def close(self) -> None:
        CALLS.append(("closed",))


def test_what_a_class_that_does_not_derive_says_of_itself_counts() -> None:
    flow = rs.Flow("x")
    flow.source(Limited()).to(Collect())
    flow.source(Read(), name="usual").to(Collect())
    limited, usual = (node.source for node in flow.nodes if isinstance(node, SourceNode))
    assert (limited.read_ahead, limited.sender_seconds) == (7, 60.0)
    assert (usual.read_ahead, usual.sender_seconds) == (4, 86_400)
    assert pickle.loads(pickle.dumps(limited)).read_ahead == 7


def test_a_class_that_does_not_derive_is_opened_and_closed() -> None:
    calls = calls_of(Limited(), Least())
    assert calls[0] == ("opened",) and calls[-1] == ("closed",)


def test_a_method_that_could_not_be_called_is_refused() -> None:
    class Wrong(Read):
        def commit(self) -> None: ...

    with pytest.raises(GraphError, match=r"Wrong.commit takes \(\).*called with \(positions\)"):
        rs.Flow("x").source(Wrong())


def test_one_that_derives_is_taken_as_it_is() -> None:
    flow = rs.Flow("x")
    told = DerivedTold()
    flow.source(DerivedRead()).to(told)
    assert isinstance(node := flow.nodes[1], SinkNode)
    assert node.sink is told is as_given(told)


def test_a_copy_of_an_adapted_sink_has_a_copy_of_the_sink() -> None:
    one = AdaptedSink(Told())
    two = copy.copy(one)
    assert type(two.given) is Told and two.given is not one.given
    three = pickle.loads(pickle.dumps(one))
    assert type(three.given) is Told


def test_a_sink_may_refuse_a_type_of_records() -> None:
    class Fussy(DerivedLeast):
        def accept(self, record: type) -> None:
            raise GraphError(f"no {record.__name__}")

    with pytest.raises(GraphError, match="no Word") as refused:
        rs.Flow("x").source(Read()).to(Fussy())
    assert refused.value.where is not None and refused.value.where.file == __file__


def test_fields_of_a_dataclass_may_be_what_a_source_or_sink_says() -> None:
    @dataclass(frozen=True)
    class Named(rs.Source[Word]):
        record: type
        reads: str
        times: int

        def splits(self) -> list[rs.Split]:
            return []

        def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Word]]]:
            return iter(())

    @dataclass
    class Owning(DerivedLeast):
        owns: str
        more: int = field(default=0)

    named = Named(Word, "here", 3)
    assert (named.record, named.reads, named.times, Owning("there").owns) == (
        Word,
        "here",
        3,
        "there",
    )
    assert (DerivedLeast().owns, rs.Sink.__dict__["owns"].__get__(object())) == (None, None)


def test_a_class_without_what_it_must_have_is_no_source() -> None:
    class Half(rs.Source[Word]):
        def splits(self) -> list[rs.Split]:
            return []

    with pytest.raises(TypeError, match="abstract method"):
        Half()  # type: ignore[abstract]


def test_an_override_that_could_not_be_called_is_refused() -> None:
    class Wrong(DerivedLeast):
        def prepare(self) -> None:  # type: ignore[override]
            ...

    with pytest.raises(GraphError, match=r"Wrong\.prepare takes \(\), but a sink is called"):
        rs.Flow("x").source(Read()).to(Wrong())


def test_the_name_of_a_split_is_text() -> None:
    class Numbered(Read):
        def splits(self) -> list[rs.Split]:
            return [rs.Split(3)]  # type: ignore[arg-type]

    flow = rs.Flow("numbered")
    flow.source(Numbered()).to(Collect())
    with pytest.raises(InputError, match=r"Split\(name=3, begin=0\) among its(.|\n)*are text"):
        flow.run()


def test_a_source_that_ends_the_program_is_named() -> None:
    class Ends(Read):
        def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Word]]]:
            exit("enough")
            yield

    flow = rs.Flow("ends")
    flow.source(Ends(), epochs=rs.by_time()).to(Collect())
    with pytest.raises(OperatorError, match=r"called sys\.exit\('enough'\)") as told:
        flow.run()
    assert told.value.where is not None and told.value.where.file == __file__
