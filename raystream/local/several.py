"""Several small epochs in one step, where it cannot be seen.

A record a second is an epoch for each record, and an epoch costs more than its record. Where one
instance of each vertex takes all of an epoch, several epochs are one step: a piece has the rows of
all of them, apart by epoch and key group. Operators close windows and ring timers that are due
between two of these epochs, and sinks are still given epoch by epoch. `local.job` asks here, and no
other driver makes such pieces.
"""

from __future__ import annotations

from raystream.api.connectors import Sink
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.keyed import KeyedInstance
from raystream.dataflow.instances.sink import SinkInstance
from raystream.dataflow.instances.source import SourceInstance
from raystream.dataflow.plan import Edge, Plan
from raystream.dataflow.sources.recorded import Recorded
from raystream.dataflow.sources.watermark_rules import PLAIN

MOST_EPOCHS = 128
MOST_ROWS = 4096
"""One step has at most this many epochs, and rows."""


def can_step_together(plan: Plan, machines: list[Instance]) -> bool:
    """Whether several epochs of a job in one process may be one step.

    Args:
        machines: all instances of the job.
    """
    if plan.check or len(machines) != len(plan.vertices):
        return False
    if sum(isinstance(machine, SourceInstance) for machine in machines) != 1:
        return False
    return all(map(_is_plain, plan.edges)) and all(map(_takes_several, machines))


def until(recorded: Recorded, position: int, every: int) -> int:
    """The last epoch of a source's next step. A step never goes beyond the next checkpoint.

    Args:
        position: the last epoch before the step. every: epochs between two checkpoints.
    """
    checkpoint = (position // every + 1) * every
    upto = min(position + MOST_EPOCHS, checkpoint)
    return recorded.several_until(position + 1, upto, MOST_ROWS)


def _is_plain(edge: Edge) -> bool:
    return not (edge.ranked or edge.to_all or edge.greatest) and edge.rules == PLAIN


def _takes_several(machine: Instance) -> bool:
    vertex = machine.vertex
    if len(machine.keys) != machine.plan.groups or len(vertex.inputs) > 1:
        return False
    if type(machine) is KeyedInstance:
        return len(machine.spec.inputs) == 1
    if type(machine) is SinkInstance:
        return type(machine.sink).end_epoch is Sink.end_epoch
    return isinstance(machine, SourceInstance) and not vertex.sets_aside
