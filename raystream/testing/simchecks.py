"""What a simulated instance may hold at most, for whom it may wait, and where it may be."""

from __future__ import annotations

from collections.abc import Mapping

from raystream.controller import commands as do
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
        held = inlet.pieces.keys() | inlet.tiled.keys() if inlet.tiled else inlet.pieces.keys()
        if held and (
            min(held) <= machine.position or max(held) > machine.position + ahead + window
        ):
            raise Wrong(f"{name} holds epochs {sorted(held)} of edge {edge}, at {machine.position}")
        for epoch, pieces in inlet.pieces.items():
            ranges = [p.header.keys for p in pieces]
            if len(ranges) > 1 and len(ranges) != len(set(ranges)):
                raise Wrong(f"{name} holds {ranges} of edge {edge} for epoch {epoch}")


def check_hired(hire: do.Hire, nodes: Mapping[str, bool]) -> None:
    """No process is started on a node that is to be left, nor a spare one where no operator is
    meant to be.

    Args:
        nodes: those that are not to be left; whether each is meant for operators.

    Raises:
        Wrong: one is.
    """
    if hire.node and hire.node not in nodes:
        raise Wrong(f"{hire} is to start on a node that is to be left")
    if any(nodes.values()) and (not hire.node or (hire.spare and not nodes[hire.node])):
        raise Wrong(f"{hire} is to start where no operator is meant to be, of {nodes}")


def check_given(become: do.Become, operator: bool, node: str, nodes: Mapping[str, bool]) -> None:
    """A place goes to a process that is where it should be.

    Args:
        node: of who was given it. nodes: see `check_hired`.

    Raises:
        Wrong: it went to another.
    """
    fit = [n for n, meant in nodes.items() if meant == operator]
    if any(nodes.values()) and fit and node not in fit:
        raise Wrong(f"{become.place.name} is to be on {node}, not on any of {fit}")
