"""The fixed cost of an epoch without records, per hop, in a chain of keyed operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import raystream as rs


class Tick(NamedTuple):
    time: rs.Int64
    key: rs.Int64


class Seen(rs.State):
    n: int = 0


@dataclass(frozen=True)
class Gap:
    """Two rows that are `epochs` seconds apart."""

    epochs: int

    record = Tick

    def splits(self) -> Sequence[rs.Split]:
        return [rs.Split("gap")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Tick]]]:
        if position == 0:
            yield 1, rs.Batch(Tick, {"time": [0, self.epochs], "key": [1, 2]})


@rs.operator(key="key")
def relay(tick: Tick, seen: Seen) -> Iterator[Tick]:
    seen.n += 1
    yield tick


class Nothing:
    """A sink that keeps nothing."""

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Tick]) -> None:
        pass

    def commit(self, epoch: int) -> None:
        pass


def run(*, epochs: int, hops: int = 3, local: bool = False) -> dict[str, Any]:
    """Microseconds per epoch and hop (each operator and the sink are a hop), and of CPU."""
    flow = rs.Flow("epoch")
    stream = flow.source(Gap(epochs), epochs=rs.by_time(seconds=1))
    for i in range(hops - 1):
        stream = stream.through(relay, name=f"relay-{i + 1}")
    stream.to(Nothing())
    report = flow.run(cluster=None if local else "auto")
    cpu = sum(o.cpu for o in report.operators)
    return {
        "work": "empty epoch",
        "form": f"{hops} hops",
        "cluster": report.cluster,
        "epochs": epochs,
        "seconds": report.elapsed,
        "microseconds_per_hop": report.elapsed / epochs / hops * 1e6,
        "cpu_microseconds_per_hop": cpu / epochs / hops * 1e6,
    }
