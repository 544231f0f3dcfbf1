"""Sinks that act at once, so at least once: after a restart what was seen may come again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TextIO

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.errors import OutputError
from raystream.schema.types import KeyRange, SinkContext


@dataclass(frozen=True)
class Calls(Sink[Any]):
    """Calls a function with every batch, or with every record."""

    function: Callable[[Any], object]
    each: bool = False
    kind: ClassVar[Literal["at-least-once"]] = "at-least-once"

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        if not self.each:
            self.function(batch)
            return
        for record in batch.records():
            self.function(record)

    def check(self) -> str:
        return "a function; it is not called"


@dataclass
class Console(Sink[Any]):
    """Prints records, at most `limit` between two commits, and how many it left out."""

    limit: int = 20
    file: TextIO | None = None
    kind: ClassVar[Literal["at-least-once"]] = "at-least-once"
    _printed: int = field(default=0, init=False, repr=False)
    _left_out: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def open(self, context: SinkContext, /) -> None:
        """Count for this instance alone."""
        self._printed, self._left_out = 0, {}

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        shown = min(self.limit - self._printed, len(batch))
        for record in batch.take(range(shown)).records():
            self._print(repr(record))
        self._printed += shown
        if shown < len(batch):
            name = batch.record.__name__
            self._left_out[name] = self._left_out.get(name, 0) + len(batch) - shown

    def check(self) -> str:
        return "prints"

    def commit(self, epoch: int, /) -> None:
        for name, number in self._left_out.items():
            self._print(f"... and {number:,} more {name} up to epoch {epoch}")
        self._printed, self._left_out = 0, {}

    def _print(self, line: str) -> None:
        file = self.file or sys.stdout
        if file is None:
            return  # it was closed before the program began
        try:
            try:
                file.write(f"{line}\n")
            except UnicodeEncodeError as error:  # letters that the terminal does not have
                file.write(f"{line.encode(error.encoding, 'replace').decode(error.encoding)}\n")
        except OSError as error:
            raise OutputError(f"the console cannot be written: {error}") from error
