"""The source of files that keep arriving."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.api.looking import counted
from raystream.api.operators import OperatorSpec
from raystream.errors import InputError, Where
from raystream.io.buckets.urls import is_bucket
from raystream.io.files.bad_lines import Sorted, stage
from raystream.io.following.looking import Seen, is_there, look, seen
from raystream.io.following.pieces import (
    ReadPieces,
    ReadThen,
    changed,
    full,
    hold,
    mark,
    piece,
    piece_of,
)
from raystream.io.following.settings import Follow
from raystream.io.following.watching import FLOOR, Memory, Settling, sequence
from raystream.schema.columns import empty
from raystream.schema.records import record_schema
from raystream.schema.types import Split

STEP_SECONDS = 0.2
"""How soon a source that waits sees that it should stop."""


@dataclass
class Following(Source[Any]):
    """Lane i is split `lane-i`: the files whose names fall to it.

    What is read is pieces of files; the stages of the source make rows of them.
    """

    files: Any
    """The source that reads a file."""
    follow: Follow
    recorded: ClassVar[bool] = True
    sender_seconds: ClassVar[float] = float("inf")
    _told: dict[str, list[Mapping[str, int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def record(self) -> Any:
        """What is recorded of a file."""
        return piece_of(self._declared)

    @property
    def reads(self) -> Any:
        """As of the files."""
        return self.files.reads

    @property
    def _declared(self) -> Any:
        """The record type as the user declared it."""
        return (self.files.files if isinstance(self.files, Sorted) else self.files).record

    @property
    def _suffixes(self) -> tuple[str, ...]:
        inner: Any = self.files.files if isinstance(self.files, Sorted) else self.files
        found: tuple[str, ...] = inner.suffixes
        return found

    def in_unit(self, unit: str, /) -> Following:
        """Times in the files are given in this unit where the record declares an int."""
        return replace(self, files=self.files.in_unit(unit))

    def splits(self) -> Sequence[Split]:
        """The lanes."""
        return [Split(f"lane-{n}") for n in range(self.follow.lanes)]

    def check(self) -> str:
        """See what is there by now, and read the first record."""
        there = look(self.reads, self._suffixes)
        text = f"{counted(len(there), 'file')} now, and what comes"
        for name in sorted(there)[:1]:
            for part in full(self.files.read(Split(name), 0), 0):
                return f"{text}; read a record ({self._declared.__name__}) of {name}" * bool(part)
        return text

    def stages(self, where: Where, /) -> tuple[OperatorSpec, ...]:
        """What makes rows of pieces, and tells bad lines from records."""
        read = ReadPieces(self.files, repr(self.files))
        pieces = record_schema(self.record)
        if isinstance(self.files, Sorted):
            both = [(spec, ReadThen(read, spec.target)) for spec in self.files.stages(where)]
            return tuple(
                replace(spec, inputs=(pieces,), target=target, process=target.process)
                for spec, target in both
            )
        return (stage("rows", read, pieces, self._declared, where),)

    def knows(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """Take what is recorded of files."""
        self._told.setdefault(split.name, []).append(dict(sequences))

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """Pieces of the files that come to a lane. Numbers of pieces count from 1."""
        nothing: Batch[Any] = Batch._of(empty(record_schema(self.record)))
        memory, number = Memory(), 0
        settling = Settling(self.follow.settling(bucket=all(map(is_bucket, self.reads))))
        while True:
            self._learn(split, memory)
            ends = self.follow.end is not None and is_there(self.reads, self.follow.end)
            wanted = self._wanted(split, memory)
            for name in settling.settled(wanted, time.monotonic(), time.time_ns()):
                for batch, sent in self._pieces(memory, name, wanted[name]):
                    number += 1
                    yield number, batch, sent
                    self._learn(split, memory)
                del wanted[name]
            if ends and not wanted:
                return
            until = time.monotonic() + self.follow.pause
            while (left := until - time.monotonic()) > 0:
                yield number, nothing  # the reader looks whether it should stop
                time.sleep(min(left, STEP_SECONDS))

    def _learn(self, split: Split, memory: Memory) -> None:
        told = self._told.get(split.name)
        while told:
            memory.learn(told.pop(0))

    def _wanted(self, split: Split, memory: Memory) -> dict[str, Seen]:
        lane, lanes = int(split.name.rpartition("-")[2]), self.follow.lanes
        found = look(self.reads, self._suffixes)
        for name in memory.unfinished():
            if name not in found or memory.names[name].changed != found[name].changed:
                raise changed(name)
        return {
            name: each
            for name, each in found.items()
            if each.size and zlib.crc32(name.encode()) % lanes == lane and memory.wants(name, each)
        }

    def _pieces(
        self, memory: Memory, name: str, found: Seen
    ) -> Iterator[tuple[Batch[Any], tuple[str, int]]]:
        """The pieces of a file that were not taken yet."""
        sender, taken = memory.begin(name, found)
        parts = full(self.files.read(Split(name), 0), 0)
        part, number = next(parts, None), 0
        operators, key = len(self.stages(Where("", 0))), repr(self.files)
        while part is not None:
            after = next(parts, None)
            if after is None and seen(name) != found:
                raise InputError(
                    f"{name} has changed while it was read.",
                    hint="Files that are followed are whole when they come: write them under a name"
                    " that begins with a dot and rename them, or say how long they take:"
                    ' follow=rs.io.Follow(settled="30s").',
                )
            if number >= taken:
                last = sequence(number, last=after is None)
                hold(key, name, part, operators)
                memory.took(name, sender, last, found)
                yield piece(self._declared, name, found, part), (sender, last)
                if (floor := memory.risen()) is not None:
                    yield mark(self._declared, part), (FLOOR, floor)
            part, number = after, number + 1
