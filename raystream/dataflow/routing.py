"""What an assignment means for an instance: the logs that it reads, and the readers of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.plan import Edge, Vertex


def reads(vertex: Vertex, assignment: Assignment) -> dict[tuple[int, str], tuple[Edge, Serving]]:
    """By (edge, producing instance) what an instance of `vertex` subscribes to: all producers,
    owners and candidates."""
    return {
        (edge.id, s.instance): (edge, s)
        for edge in vertex.inputs
        for s in assignment.of(edge.producer)
    }


def readers(vertex: Vertex, assignment: Assignment, committed: int) -> dict[tuple[int, str], int]:
    """By (edge, consuming instance) the first epoch that it will ask of an instance of `vertex`
    whose logs begin after `committed`."""
    return {
        (edge.id, s.instance): max(s.first, committed + 1)
        for edge in vertex.outputs
        for s in assignment.of(edge.consumer)
    }


def catching_up(vertex: Vertex, assignment: Assignment) -> set[tuple[int, str]]:
    """Those of the `readers` of an instance of `vertex` that are candidates."""
    return {
        (edge.id, s.instance)
        for edge in vertex.outputs
        for s in assignment.of(edge.consumer)
        if s.candidate
    }


class Served:
    """How far each subscriber, an (edge, instance), was served: the next epoch that it is given.

    The producer may be only a few epochs ahead of the slowest owner among them (flow control). A
    candidate, which catches up, slows no producer: what it has not read stays in the log.
    """

    def __init__(self) -> None:
        self.next: dict[tuple[int, str], int] = {}
        self._candidates: frozenset[tuple[int, str]] = frozenset()

    def expect(
        self,
        subscribers: Mapping[tuple[int, str], int],
        candidates: Collection[tuple[int, str]] = (),
    ) -> None:
        """Set the subscribers, each with the first epoch that it asks for.

        Args:
            candidates: the subscribers that do not slow the producer.
        """
        self.next = {who: self.next.get(who, first) for who, first in subscribers.items()}
        self._candidates = frozenset(candidates)

    def slows(self, who: tuple[int, str]) -> bool:
        """Whether a subscriber may slow the producer."""
        return who in self.next and who not in self._candidates

    def slowest(self) -> int:
        """The earliest epoch that some owner was not yet served."""
        if not self._candidates:  # asked for at each piece and step
            return min(self.next.values(), default=1 << 62)
        counting = (e for who, e in self.next.items() if who not in self._candidates)
        return min(counting, default=1 << 62)
