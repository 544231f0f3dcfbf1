"""A sink with a file of its own; a process that takes its place goes on there."""

from __future__ import annotations

from typing import Any

import raystream as rs


class Notes(rs.Sink[Any]):
    """What sinks of benchmarks have in common: `file`, to which each writes lines of its own."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, context: rs.SinkContext) -> None:
        self.file = open(self.path, "a", buffering=1)  # noqa: SIM115 - closed with the process
