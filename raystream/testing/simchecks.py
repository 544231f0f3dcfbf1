"""What a simulated instance may hold at most, and for whom it may wait."""

from __future__ import annotations

from raystream.controller.journal import Entry
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.routing import Served
from raystream.testing.simworld import Wrong


def check_waits(name: str, served: Served, ahead: int, position: int, entry: Entry) -> None:
    """Law L5: nobody waits for a candidate.

    Args:
        position: of an instance that is `ahead` epochs before the slowest of its subscribers.

    Raises:
        Wrong: there is none so slow that is not a candidate.
    """
    candidates = {s.instance for s in entry.assignment.serving if s.candidate}
    slow = {instance for (_, instance), at in served.next.items() if position >= at + ahead}
    if slow <= candidates:
        raise Wrong(f"{name} at {position} waits for {sorted(slow)}, which catch up")


def check_bounded(
    name: str, machine: Instance | SourceInstance, floor: int, ahead: int, window: int
) -> None:
    """What an instance holds is bounded.

    Args:
        floor: the newest that it was told. ahead: how many epochs more than it has applied it takes
            in; window: how many pieces of a stream may be under way beside them.

    Raises:
        Wrong: an inlet holds more than `ahead` + `window` pieces of a producer's range, or epochs
            that were applied, or a log other epochs than those after the floor.
    """
    for edge, log in machine.outlets.logs.items():
        if len(log.entries) > max(0, machine.position - floor):
            raise Wrong(
                f"{name} holds {len(log.entries)} epochs of edge {edge}, at epoch"
                f" {machine.position} with the floor at {floor}"
            )
    if not isinstance(machine, Instance):
        return
    for edge, inlet in machine.inlets.items():
        held = sorted({*inlet.pieces, *inlet.tiled})
        if held and (held[0] <= machine.position or held[-1] > machine.position + ahead + window):
            raise Wrong(f"{name} holds epochs {held} of edge {edge}, at {machine.position}")
        for epoch, pieces in inlet.pieces.items():
            ranges = [p.header.keys for p in pieces]
            if len(ranges) != len(set(ranges)):
                raise Wrong(f"{name} holds {ranges} of edge {edge} for epoch {epoch}")
