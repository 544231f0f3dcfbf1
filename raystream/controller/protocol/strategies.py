"""What a recovery starts from, as one object: checkpoints, the upstream logs, or the sources alone.

The words are those of SEEP (SIGMOD 2013). `KeepsCheckpoints` is what jobs run with; the two others
are for comparison. Everything that depends on the choice asks the strategy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from raystream.controller.protocol.recovery import Place
from raystream.dataflow.plan import Plan

RecoveryMode = Literal["state", "upstream", "source"]
"""What a user asks for: see `KeepsCheckpoints`, `KeepsLogs` and `SourcesOnly`."""


class RecoveryStrategy:
    """What a recovery starts from, and what follows from that."""

    stores_checkpoints = False
    """Whether instances store checkpoints with keepers. Without them the only checkpoint that is
    ever committed is the last epoch."""
    replaces_together = False
    """Whether instances that die while others are being replaced begin together with these."""
    forgets_logs = False
    """Whether an operator drops what it has sent as soon as all its consumers have it, without
    waiting for a commit."""
    refuses_moves = ""
    """Why ranges cannot move; empty if they can."""

    def widened(self, gone: Iterable[Place], places: Iterable[Place], plan: Plan) -> set[str]:
        """The names of all instances that have to be made again when some are gone."""
        return {p.name for p in gone}


class KeepsCheckpoints(RecoveryStrategy):
    """A new instance has the state of the committed checkpoint, and reads what came after it from
    the logs of its producers."""

    stores_checkpoints = True


class KeepsLogs(RecoveryStrategy):
    """Nothing is stored: a new instance reads everything again from the logs of its producers, from
    the first epoch on."""


class SourcesOnly(RecoveryStrategy):
    """Nothing is stored, and only sources can send again: all instances between them and a new
    instance are made again too."""

    replaces_together = True
    forgets_logs = True
    refuses_moves = "where only sources keep what they sent (recovery='source'), ranges cannot move"

    def widened(self, gone: Iterable[Place], places: Iterable[Place], plan: Plan) -> set[str]:
        gone = list(gone)
        again: set[int] = set()
        front = [p.vertex for p in gone]
        while front:
            for edge in plan.vertices[front.pop()].inputs:
                if edge.producer not in again and plan.vertices[edge.producer].kind != "source":
                    again.add(edge.producer)
                    front.append(edge.producer)
        return {p.name for p in gone} | {p.name for p in places if p.vertex in again}


def strategy_of(mode: RecoveryMode) -> RecoveryStrategy:
    """The strategy of a mode."""
    kinds: dict[str, type[RecoveryStrategy]] = {
        "state": KeepsCheckpoints, "upstream": KeepsLogs, "source": SourcesOnly,
    }  # fmt: skip
    return kinds[mode]()
