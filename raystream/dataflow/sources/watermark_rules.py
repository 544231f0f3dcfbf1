"""What a watermark follows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from raystream.api.nodes import Branch


@dataclass(frozen=True, slots=True)
class WatermarkRule:
    """What a watermark follows (`dataflow.sources.event_times`)."""

    port: int | None = None
    """The port of which it follows the greatest time; None: it is the watermark of the vertex."""
    field: str = ""
    """The field of that port's records that is the time."""
    disorder: int = 0
    """By how much it stays behind that time, in the flow's unit."""
    behind: int = 0
    """By how much it stays behind the watermark that a stream had before, in the flow's unit."""

    def of(self, branch: Branch, port: int) -> WatermarkRule:
        """What the watermark of a branch of a port follows, if that of the port follows this."""
        timed = branch.timed
        if timed is None:
            return self
        if timed.behind is not None:
            return replace(self, behind=self.behind + timed.behind)
        return WatermarkRule(port, timed.field, timed.disorder)


PLAIN = (WatermarkRule(),)
"""A watermark that is that of the vertex, as nearly all are."""


def rules_of(
    taken: Iterable[tuple[Branch, tuple[WatermarkRule, ...], int]],
) -> tuple[WatermarkRule, ...]:
    """What the watermark of several branches together follows.

    Args:
        taken: of each branch the rules of its port, and the port.
    """
    rules = (m.of(branch, port) for branch, of_port, port in taken for m in of_port)
    return tuple(dict.fromkeys(rules))
