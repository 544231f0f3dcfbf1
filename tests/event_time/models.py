"""What flows over time mean, without epochs, instances or compilation: a loop over one key."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import raystream as rs
from raystream.schema.state import FORGOTTEN

Answers = dict[Any, list[Any]]
"""By key and type what is emitted, in order. Sinks do not show how types follow each other."""


def by_key(records: Sequence[Any], kinds: Sequence[type]) -> dict[Any, list[Any]]:
    """The records of each key in order of time; at one time in order of their types, then as they
    come."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for record in sorted(records, key=lambda r: (r.time, kinds.index(type(r)))):
        found[record.key].append(record)
    return found


def timed(op: Any, state: Any, kinds: Sequence[type], records: Sequence[Any]) -> Answers:
    """What an operator with timers emits. An alarm rings before the first record of its key that is
    not earlier, or after the last record."""
    answers: Answers = defaultdict(list)
    for key, mine in by_key(records, kinds).items():
        row: Any = None
        out: list[Any] = []
        for record in mine:
            row = _rung(op, key, row, record.time, out)
            row = state() if row is None else row
            out += op.process(record, row) or ()
            row = None if row._mark == FORGOTTEN else row
        _rung(op, key, row, rs.NEVER - 1, out)
        answers |= emitted(out)
    return answers


def _rung(op: Any, key: Any, row: Any, upto: int, out: list[Any]) -> Any:
    while row is not None and row.due <= upto:
        due, row.due = row.due, rs.NEVER
        out += op.timer(key, due, row) or ()
        row = None if row._mark == FORGOTTEN else row
    return row


def emitted(records: Sequence[Any]) -> Answers:
    """What a flow emitted, by key."""
    answers: Answers = defaultdict(list)
    for record in records:
        answers[record.key, type(record)].append(record)
    return answers


def lengths(most: int, disorder: int = 0) -> Iterator[rs.Epochs]:
    """Epochs of each length in seconds, and by arrival."""
    for seconds in range(1, most + 1):
        yield rs.by_time(seconds=seconds, disorder=disorder)
    yield rs.by_arrival(disorder=disorder)


def disordered(rng: random.Random, records: Sequence[Any], by: int) -> list[Any]:
    """The records as they may come when each may be up to `by` behind those before it. Records of
    one time keep their order."""
    delay = {time: rng.randint(0, by) for time in {r.time for r in records}}
    return sorted(records, key=lambda r: (r.time + delay[r.time], r.time))


def windowed(size: int, records: Sequence[Any]) -> dict[Any, list[Any]]:
    """By (key, start of a tumbling window) the values of its records, in order of time."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for r in sorted(records, key=lambda r: r.time):
        found[r.key, r.time // size * size].append(r.value)
    return found


def sessions(gap: int, records: Sequence[Any]) -> dict[Any, list[Any]]:
    """By (key, start of a session) the values of its records, in order of time."""
    found: dict[Any, list[Any]] = {}
    for key, mine in by_key(records, [type(r) for r in records[:1]]).items():
        start, last = 0, None
        for r in mine:
            if last is None or r.time - last >= gap:
                start = r.time
            found.setdefault((key, start), []).append(r.value)
            last = r.time
    return found
