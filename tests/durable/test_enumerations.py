"""State with members of an enumeration that has fewer of them when a run goes on."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import InputError, StateError
from raystream.testing.collect import Collect


class Numbered(NamedTuple):
    time: int
    k: int


@dataclass(frozen=True)
class Breaking:
    """Twenty records; it breaks before one of them."""

    breaks: int

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Numbered]]]:
        for i in range(position, 20):
            if i == self.breaks:
                raise OSError("power")
            yield i + 1, rs.Batch(Numbered, {"time": [i], "k": [i % 3]})


@pytest.mark.parametrize("nested", [False, True])
def test_a_member_that_an_enumeration_has_lost_is_told(nested: bool, tmp_path: Path) -> None:
    def run(members: list[str], breaks: int) -> None:
        kind: Any = enum.IntEnum("Kind", members)
        annotations = {"last": kind, "all": list[kind]}
        body = {"__annotations__": annotations, "last": kind(1), "all": rs.field(factory=list)}
        state: Any = type("Kinds", (rs.State,), {**body, "__module__": __name__})

        def op(record, kinds):  # type: ignore[no-untyped-def]
            if nested:
                kinds.all = [kind(len(kind))]
            else:
                kinds.last = kind(len(kind))
            yield record

        op.__annotations__ = {"record": Numbered, "kinds": state, "return": Iterator[Numbered]}
        flow, source = rs.Flow("kinds"), Breaking(breaks)
        stream = flow.source(source, epochs=rs.by_time(seconds=1))
        stream.through(rs.operator(key="k")(op)).to(Collect())
        flow.run(durable=str(tmp_path), resume=True, checkpoint_every=3)

    with pytest.raises(InputError, match="power"):
        run(["A", "B", "C"], 15)
    with pytest.raises(StateError, match=r"holds what Kinds or its key cannot: 3 is not a valid"):
        run(["A", "B"], 99)
