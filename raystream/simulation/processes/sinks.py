"""Simulated sinks: they compare all that they are given with what it has to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raystream.api.connectors import Sink
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.upgrading.versions import CodeVersion, version_at
from raystream.schema.types import NEVER, KeyRange
from raystream.simulation.world import Wrong

Reference = dict[int, dict[tuple[int, KeyRange, str], list[Any]]]
"""By vertex and (epoch, range, type) the records that a sink is to be given."""


@dataclass
class WrittenParts:
    """What the sinks of a job were given."""

    parts: set[tuple[int, int, KeyRange, str]] = field(default_factory=set)
    """(vertex, epoch, range, type) of each part that was written."""
    closed: set[tuple[int, KeyRange]] = field(default_factory=set)
    """(vertex, range) of each sink that was closed."""

    def upto(self, checkpoint: int) -> WrittenParts:
        """The parts that stay when another run goes on from a checkpoint."""
        return WrittenParts({p for p in self.parts if p[1] <= checkpoint})


class Checked(Sink[Any]):
    """A sink that compares every part with what it is to be."""

    def __init__(self, place: Place, expected: dict[Any, list[Any]], written: WrittenParts) -> None:
        self.place = place
        self.expected = expected
        self.written = written

    def write(self, epoch: int, keys: KeyRange, batch: Any) -> None:
        part = (epoch, keys, batch.record.__name__)
        if self.expected.get(part) != (got := list(batch.records())):
            raise Wrong(f"{self.place.name} wrote {part}: {got}, not {self.expected.get(part)}")
        self.written.parts.add((self.place.vertex, *part))

    def prepare(self, epoch: int) -> None:
        self._whole(epoch)

    def commit(self, epoch: int) -> None:
        self._whole(epoch)

    def close(self) -> None:
        self.written.closed.add((self.place.vertex, self.place.keys))

    def _whole(self, epoch: int) -> None:
        """Check that no part up to an epoch is missing when the epoch is committed."""
        for part in self.expected:
            due = part[0] <= epoch and part[1] == self.place.keys
            if due and (self.place.vertex, *part) not in self.written.parts:
                raise Wrong(f"{self.place.name} was told to commit {epoch} before {part}")


@dataclass(frozen=True, slots=True)
class SinkCall:
    """A call of a sink."""

    place: Place
    """The place of its instance."""
    method: str
    """`write`, `prepare`, `commit` or `close`."""
    args: tuple[Any, ...]
    """What it was given: first the epoch, except of `close`."""
    version: int
    """The version of the code that the instance ran."""

    def upto(self, checkpoint: int) -> bool:
        """Whether it is of an epoch up to a checkpoint."""
        return self.method != "close" and self.args[0] <= checkpoint


class Deferred(Sink[Any]):
    """A sink whose parts can only be judged at the end. It notes all calls, for a `Checked`.

    Args:
        version: says which version of the code its instance runs.
    """

    def __init__(self, place: Place, calls: list[SinkCall], version: Callable[[], int]) -> None:
        self.place = place
        self.calls = calls
        self.version = version

    def write(self, epoch: int, keys: KeyRange, batch: Any) -> None:
        self._note("write", epoch, keys, batch)

    def prepare(self, epoch: int) -> None:
        self._note("prepare", epoch)

    def commit(self, epoch: int) -> None:
        self._note("commit", epoch)

    def close(self) -> None:
        self._note("close")

    def _note(self, method: str, *args: Any) -> None:
        self.calls.append(SinkCall(self.place, method, args, self.version()))


def confirmed(calls: list[SinkCall], versions: Sequence[CodeVersion]) -> list[SinkCall]:
    """The calls without those that write epochs which another version of the code has to make: an
    instance that was replaced, and did not know it, had gone on with the version before. It must
    never have been told to commit them.

    Args:
        versions: the versions of the code that are settled.
    """
    kept: list[SinkCall] = []
    outdated: dict[str, int] = {}
    for call in calls:
        version = version_at(versions, call.args[0]) if call.args else None
        wrong = call.version != (0 if version is None else version.number)
        if call.method in ("write", "prepare") and wrong:
            first = outdated.get(call.place.name, call.args[0])
            outdated[call.place.name] = min(first, call.args[0])
        elif call.method == "commit" and call.args[0] >= outdated.get(call.place.name, NEVER):
            raise Wrong(f"{call.place.name} was told to commit epochs that older code has made")
        else:
            kept.append(call)
    return kept
