"""What a simulated instance may hold at most, what it may wait for, and where it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.messages import commands as do
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.routing import Served
from raystream.simulation.world import Wrong
from raystream.state.log.epoch_log import Bound


def check_waits(
    name: str, served: Served, ahead: int, machine: Instance, entry: JournalEntry
) -> None:
    """Law L5: nobody waits for a candidate.

    Args:
        machine: of an instance that is `ahead` epochs before the slowest of its subscribers.

    Raises:
        Wrong: there is none so slow that is not a candidate.
    """
    candidates = {s.instance for s in entry.assignment.serving if s.candidate}
    bound, is_ahead = Bound(ahead, 0, ahead), machine.outlets.is_ahead
    slow = {who for (_, who), at in served.next.items() if is_ahead(at, bound)}
    if slow <= candidates:
        raise Wrong(f"{name} at {machine.position} waits for {sorted(slow)}, which catch up")


def check_bounded(name: str, machine: Instance, committed: int, ahead: int, window: int) -> None:
    """What an instance holds is bounded.

    Args:
        committed: the newest committed checkpoint that it was told.
        ahead: how many epochs after the last one that it has applied it takes in.
        window: how many more pieces of a stream may be under way.

    Raises:
        Wrong: an inlet holds more than `ahead` + `window` pieces of a producer's range, or epochs
            that were applied, or a log other epochs than those after the committed checkpoint.
    """
    for edge, log in machine.outlets.logs.items():
        if len(log.entries) > max(0, machine.position - committed):
            raise Wrong(
                f"{name} holds {len(log.entries)} epochs of edge {edge}, at epoch"
                f" {machine.position} with {committed} committed"
            )
    for edge, inlet in machine.inlets.items():
        held = inlet.pieces.keys() | inlet.tiled.keys() if inlet.tiled else inlet.pieces.keys()
        of_range = Counter(p.header.keys for ps in inlet.pieces.values() for p in ps)
        if held and (
            min(held) <= machine.position or max(of_range.values(), default=0) > ahead + window
        ):
            raise Wrong(f"{name} holds epochs {sorted(held)} of edge {edge}, at {machine.position}")
        for epoch, pieces in inlet.pieces.items():
            ranges = [p.header.keys for p in pieces]
            if len(ranges) > 1 and len(ranges) != len(set(ranges)):
                raise Wrong(f"{name} holds {ranges} of edge {edge} for epoch {epoch}")


def check_hired(hire: do.Hire, nodes: Mapping[str, bool]) -> None:
    """Check that no process is started on a node that is to be left, nor a spare one on a node that
    is not meant for operators.

    Args:
        nodes: the nodes that are not to be left; whether each is meant for operators.

    Raises:
        Wrong: such a process is started.
    """
    if hire.node and hire.node not in nodes:
        raise Wrong(f"{hire} is to start on a node that is to be left")
    if any(nodes.values()) and (not hire.node or (hire.spare and not nodes[hire.node])):
        raise Wrong(f"{hire} is to start where no operator is meant to be, of {nodes}")


def check_given(become: do.Become, operator: bool, node: str, nodes: Mapping[str, bool]) -> None:
    """Check that a place is given to a process on a node where it should be.

    Args:
        node: the node of the process.
        nodes: see `check_hired`.

    Raises:
        Wrong: the process is on another node.
    """
    fit = [n for n, meant in nodes.items() if meant == operator]
    if any(nodes.values()) and fit and node not in fit:
        raise Wrong(f"{become.place.name} is to be on {node}, not on any of {fit}")
