"""Where clients push into a running job, as its controller says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from raystream.api.connectors import as_given
from raystream.io.push.source import Pushed


class Entrance(NamedTuple):
    """What a client has to know of a push source."""

    port: int
    path: str
    token: str


def entrances(sources: Mapping[str, Any]) -> dict[str, Entrance]:
    """Those of the sources of a job, by name, that are push sources."""
    found = {name: as_given(source) for name, source in sources.items()}
    return {
        name: Entrance(source.port, source.path, source.token)
        for name, source in found.items()
        if isinstance(source, Pushed)
    }
