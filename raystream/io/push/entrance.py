"""Where clients push into a running job, as its controller says it."""

from __future__ import annotations

from typing import NamedTuple

from raystream.api.connectors import as_given
from raystream.dataflow.plan import Plan
from raystream.io.push.source import Pushed


class Entrance(NamedTuple):
    """What a client has to know of a push source."""

    port: int
    path: str
    token: str


def entrances(plan: Plan) -> dict[str, Entrance]:
    """The push sources of a job, by name."""
    found = {v.name: as_given(v.source) for v in plan.vertices if v.kind == "source"}
    return {
        name: Entrance(source.port, source.path, source.token)
        for name, source in found.items()
        if isinstance(source, Pushed)
    }
