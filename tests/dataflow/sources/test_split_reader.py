"""What a source's `read` may not do is told, with the source and the split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import InputError, OperatorError
from raystream.testing import Collect, run_local
from tests.dataflow.sources.ticks import Tick, echo


@dataclass(frozen=True)
class Faulty:
    record: type
    doing: str

    def splits(self) -> list[rs.Split]:
        return [rs.Split("one")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Any]]]:
        if self.doing == "os":
            raise FileNotFoundError("no such file: x")
        if self.doing == "bug":
            yield 1, 1 // 0
        if self.doing == "begin":  # where the batch begins, not where the next one does
            yield 0, rs.Batch(Tick, {"time": [1], "id": [1]})
        if self.doing == "nothing":
            yield 1, rs.Batch(Tick, {"time": [1], "id": [1]})
            yield None  # type: ignore[misc]
            yield 2, rs.Batch(Tick, {"time": [2], "id": [2]})
            return
        if self.doing == "misfit":
            yield 1, rs.Batch(Tick, {"time": [1.5], "id": [1]})
        yield 1, rs.Batch(Other, {"n": [1]})


class Other(NamedTuple):
    n: int


@pytest.mark.parametrize(
    ("doing", "kind", "complaint"),
    [
        ("os", InputError, "faulty: cannot read one: FileNotFoundError: no such file"),
        ("bug", OperatorError, r"faulty\.read\('one'\) raised ZeroDivisionError"),
        ("type", InputError, "faulty yields Other, but declared Tick"),
        ("begin", InputError, r"at which it begins, 0: (.|\n)*not \(n, batch\)"),
        ("nothing", InputError, r"faulty\.read\('one'\) yields a NoneType"),
        ("misfit", InputError, r"faulty\.read\('one'\): Tick\.time: .*\n.*rs\.Batch\(Tick"),
    ],
)
def test_what_a_source_can_do_wrong(doing: str, kind: type[Exception], complaint: str) -> None:
    flow = rs.Flow("faulty")
    flow.source(Faulty(Tick, doing)).through(echo).to(Collect())
    with pytest.raises(kind, match=complaint):
        run_local(flow)


class Eager:
    """A source whose `read` is no generator: it raises when it is called."""

    record = Tick

    def splits(self) -> list[rs.Split]:
        return [rs.Split("only")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Tick]]]:
        raise KeyError("no such table")


def test_what_read_raises_when_it_is_called_is_told_with_its_line() -> None:
    flow = rs.Flow("eager")
    flow.source(Eager(), epochs=rs.by_time("time", seconds=1)).to(Collect())
    with pytest.raises(
        OperatorError, match=r"read\('only'\) raised KeyError.*no such table"
    ) as told:
        run_local(flow)
    assert "test_split_reader.py" in str(told.value)
