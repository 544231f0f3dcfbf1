"""The journal of a sink: what Kafka knows of its output, and which instance may add to it.

A compacted topic holds it, which all jobs may share. Its records are written in the same
transactions as the output, so they are always of one mind with it. There are four kinds:

    run     a run of the sink
    claim   the owner that begins to take a range over
    marks   the markers of an instance, see `raystream.io.databases.markers`
    rows    messages that are staged, and that no reader of the target sees yet

Records are never changed by others than the instances of their range, so what several instances
wrote may overlap: of markers that do, those of the greater owner count. A record without a value
deletes the one with its key. Everything here is a function of values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgpack

from raystream.io.databases.connection import Staged
from raystream.io.databases.markers import Marker, MarkerOwner, Run
from raystream.schema.types import KeyRange

CHUNK_BYTES = 256 << 10
"""How many bytes of staged messages one record holds, or one message if that is longer."""


class Outgoing(NamedTuple):
    """A message that is to be written."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    """Milliseconds since 1970; None: when it is sent."""
    headers: tuple[tuple[str, bytes], ...] = ()


class JournalRecord(NamedTuple):
    """A record of the journal."""

    key: bytes
    value: bytes | None


Place = tuple[KeyRange, int, int]
"""Of staged messages the range of the instance that staged them, their epoch, and their number."""


class SinkJournal:
    """What the journal says of one sink."""

    def __init__(self, sink: str) -> None:
        self.sink = sink
        self.runs: dict[int, Run] = {}
        self.claims: dict[KeyRange, MarkerOwner] = {}
        self.marks: dict[KeyRange, tuple[Marker, ...]] = {}
        self.rows: dict[Place, bytes] = {}

    def copy(self) -> SinkJournal:
        """Another journal that says the same."""
        made = SinkJournal(self.sink)
        made.runs, made.claims = dict(self.runs), dict(self.claims)
        made.marks, made.rows = dict(self.marks), dict(self.rows)
        return made

    # ------------------------------------------------------------ records

    def take(self, entry: JournalRecord) -> None:
        """Take a record that was read. Those of other sinks are left out."""
        sink, kind, *at = json.loads(entry.key)
        if sink != self.sink:
            return
        value = entry.value
        if kind == "rows":
            place: Place = (KeyRange(at[0], at[1]), at[2], at[3])
            if value is None:
                self.rows.pop(place, None)
            else:
                self.rows[place] = value
        elif value is None:
            return
        elif kind == "run":
            self.runs[at[0]] = Run(*json.loads(value))
        elif kind == "claim":
            keys, owner = KeyRange(*at), MarkerOwner(*json.loads(value))
            self.claims[keys] = max(owner, self.claims.get(keys, owner))
        elif kind == "marks":
            self.marks[KeyRange(*at)] = tuple(_marker(m) for m in json.loads(value))

    def run(self, run: Run) -> JournalRecord:
        """The record of a run."""
        return self._note(["run", run.order], json.dumps(run).encode())

    def claim(self, keys: KeyRange, owner: MarkerOwner) -> JournalRecord:
        """The record of an owner that begins to take a range over."""
        return self._note(["claim", *keys], json.dumps(owner).encode())

    def mark(self, keys: KeyRange, markers: Iterable[Marker]) -> JournalRecord:
        """The record of the markers of the instance of a range."""
        return self._note(["marks", *keys], json.dumps([_plain(m) for m in markers]).encode())

    def stage(self, staged: Staged) -> list[JournalRecord]:
        """The records of messages that no reader is to see yet."""
        number = max(
            (n for k, e, n in self.rows if (k, e) == (staged.keys, staged.epoch)), default=-1
        )
        return [
            self._note(["rows", *staged.keys, staged.epoch, n], packed(chunk))
            for n, chunk in enumerate(chunks(staged.rows), number + 1)
        ]

    def unstage(self, places: Iterable[Place]) -> list[JournalRecord]:
        """The records that delete staged messages."""
        return [self._note(["rows", *keys, epoch, n], None) for keys, epoch, n in places]

    def _note(self, key: list[Any], value: bytes | None) -> JournalRecord:
        """A record, taken."""
        entry = JournalRecord(json.dumps([self.sink, *key], separators=(",", ":")).encode(), value)
        self.take(entry)
        return entry

    # ------------------------------------------------------------ what it says

    def markers(self) -> list[Marker]:
        """The markers that count."""
        return resolved(self.marks.values())

    def others(self, keys: KeyRange) -> set[KeyRange]:
        """The ranges of instances that may write to key groups of a range, besides its own."""
        known = {*self.claims, *self.marks}
        return {each for each in known if each != keys and each.overlaps(keys)}

    def has_greater(self, keys: KeyRange, owner: MarkerOwner) -> bool:
        """Whether a greater owner has begun to take over a part of a range, or has done so."""
        owners = [o for k, o in self.claims.items() if k.overlaps(keys)]
        owners += [m.owner for m in self.markers() if m.keys.overlaps(keys)]
        return any(other > owner for other in owners)

    def staged(self, keys: KeyRange, after: int, upto: int) -> list[Place]:
        """The messages that the instance of a range has to see to, of epochs after `after` up to
        `upto`, in order. Those of an earlier run may belong to a range that several instances share
        now: the instance that has their first key group sees to all of them."""
        found = [p for p in self.rows if keys.holds(p[0].lo) and after < p[1] <= upto]
        return sorted(found, key=lambda p: (p[1], p[0].lo, p[2]))


def _plain(marker: Marker) -> list[Any]:
    return [*marker.keys, marker.epoch, marker.shown, *marker.owner, marker.ended]


def _marker(plain: Sequence[Any]) -> Marker:
    lo, hi, epoch, shown, run, generation, ended = plain
    return Marker(KeyRange(lo, hi), epoch, shown, MarkerOwner(run, generation), ended)


def resolved(marks: Collection[Iterable[Marker]]) -> list[Marker]:
    """Markers that do not overlap: where some do, those of the greater owner are whole, and what is
    left of the others is as it was."""
    found: list[Marker] = []
    for marker in sorted((m for each in marks for m in each), key=lambda m: m.owner):
        kept = []
        for m in found:
            if not m.keys.overlaps(marker.keys):
                kept.append(m)
                continue
            for lo, hi in ((m.keys.lo, marker.keys.lo), (marker.keys.hi, m.keys.hi)):
                if lo < hi:
                    kept.append(m._replace(keys=KeyRange(lo, hi)))
        found = [*kept, marker]
    return sorted(found)


# ---------------------------------------------------------------- staged messages


def chunks(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Messages in order, cut into pieces that fit into a record."""
    found: list[list[Outgoing]] = []
    size = CHUNK_BYTES
    for message in messages:
        this = len(message.key or b"") + len(message.value or b"") + 16
        this += sum(len(name) + len(value) for name, value in message.headers)
        if size + this > CHUNK_BYTES:
            found.append([])
            size = 0
        found[-1].append(message)
        size += this
    return found


def packed(messages: Sequence[Outgoing]) -> bytes:
    """Messages as bytes."""
    made: bytes = msgpack.packb(list(messages))
    return made


def unpacked(data: bytes) -> list[Outgoing]:
    """What `packed` made."""
    return [
        Outgoing(key, value, at, tuple((name, content) for name, content in headers))
        for key, value, at, headers in msgpack.unpackb(data)
    ]
