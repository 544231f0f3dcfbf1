"""What a client needs to read the state of a running job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raystream.api.row_shapes import shape_of
from raystream.controller.protocol.journal import JournalEntry
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.plan import Plan
from raystream.dataflow.upgrading.versions import version_at
from raystream.security.credentials import Credentials


class KeptRows(NamedTuple):
    """The rows that an operator keeps."""

    vertex: int
    """The number of the operator in the plan."""
    keys: Any
    """The Arrow schema of its keys; for windows with the start of the window."""
    rows: Any
    """The Arrow schema of its rows, as images hold them."""
    words: str
    """The fields of a row and their types in words, as `readable` takes them."""


class StateRoutes(NamedTuple):
    """Where the rows of all operators are now."""

    number: int
    """The number of the run: greater than the number of each run before it."""
    credentials: Credentials
    """What a client has to show to instances."""
    groups: int
    """The number of key groups."""
    operators: Mapping[str, KeptRows]
    """The operators that keep rows, by name, with the class of the committed checkpoint."""
    assignment: Assignment
    """Which instances own which ranges."""
    committed: int
    """The newest committed checkpoint; 0 before there is one."""
    keepers: tuple[str, ...]
    """The processes of the keepers, which hold the committed checkpoint."""


def state_routes(plan: Plan, entry: JournalEntry, credentials: Credentials) -> StateRoutes | None:
    """What the controller tells a client; None if the job has not begun yet.

    The number of a run comes from its durable tier. Without one, it is the Unix second in which the
    run began.
    """
    if plan.durable is None and not entry.started:
        return None
    operators = {}
    version = version_at(entry.assignment.versions, entry.committed)
    for vertex in plan.vertices:
        shape = None if vertex.spec is None else shape_of(vertex.spec)
        if shape and version and version.shapes[vertex.name] != shape.fingerprint:
            spec = version.of(vertex).spec
            shape = None if spec is None else shape_of(spec)
        if shape is not None:
            kept = KeptRows(vertex.id, shape.gone, shape.rows, shape.fingerprint)
            operators[vertex.name] = kept
    return StateRoutes(
        number=int(entry.started) if plan.durable is None else plan.durable.number,
        credentials=credentials,
        groups=plan.groups,
        operators=operators,
        assignment=entry.assignment,
        committed=entry.committed,
        keepers=tuple(keeper.process for keeper in entry.keepers),
    )
