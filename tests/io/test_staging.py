"""What is staged and sealed: in pieces, and as a whole under random schedules with faults."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest

from raystream.dataflow.sources.live import LiveSplit, Sent
from raystream.errors import InputError
from raystream.io.push import sequences as sequences_module
from raystream.io.push.sequences import Sequences
from raystream.io.push.staging import (
    IDLE_SECONDS,
    PART_BYTES,
    STAGED_SECONDS,
    Staging,
    in_order,
)
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL


class Row(NamedTuple):
    n: int
    text: str = ""


SCHEMA = record_schema(Row)


def rows(*numbers: int) -> Columns:
    return from_records(SCHEMA, [Row(n) for n in numbers])


def numbers(parts: list[Columns]) -> list[int]:
    return [int(n) for part in parts for n in part.column("n")]


def test_attempts_come_in_their_order_and_that_of_their_parts() -> None:
    staging = Staging()
    for attempt, part, n in [("b", 1, 4), ("a", 0, 1), ("b", 0, 3), ("a", 0, 9)]:
        assert staging.put(0, "q", attempt, part, rows(n), 0.0)
    found = staging.taken(0, "q", [("b", 2), ("a", 1)])
    assert isinstance(found, list)
    assert numbers(found) == [3, 4, 1]  # a part that came twice counts once
    assert staging.taken(0, "q", [("b", 3)]) == "b"
    assert staging.taken(1, "q", [("a", 1)]) == "a"
    assert staging.taken(0, "other", [("a", 1)]) == "a"
    staging.drop("q", 0, ["a"])
    assert staging.taken(0, "q", [("a", 1)]) == "a"
    staging.leave(0)
    assert staging.nbytes == 0


def test_what_is_not_sealed_is_dropped_by_time_and_where_room_is_needed() -> None:
    size = rows(1).nbytes() + PART_BYTES
    staging = Staging(2 * size)
    assert staging.put(0, "q", "old", 0, rows(1), 0.0)
    assert staging.put(0, "q", "new", 0, rows(2), 10.0)
    assert not staging.put(0, "q", "more", 0, rows(3), 10.0)  # nobody has waited long enough
    assert staging.put(0, "q", "old", 0, rows(1), 10.0)  # it came again: it lives
    assert staging.put(0, "q", "more", 0, rows(3), 10.0 + IDLE_SECONDS)
    assert staging.nbytes == 2 * size
    assert staging.taken(0, "q", [("more", 1)]) != "more"
    assert staging.put(0, "q", "last", 0, rows(4), 100.0 + IDLE_SECONDS + STAGED_SECONDS)
    assert staging.nbytes == size
    alone = Staging(1)
    assert alone.put(0, "q", "large", 0, rows(1, 2, 3), 0.0)  # one alone always has room


def test_rows_are_ordered_by_fields_of_numbers() -> None:
    parts = [rows(3, 1), rows(2, 1)]
    assert numbers([in_order(parts, [])]) == [3, 1, 2, 1]
    assert numbers([in_order(parts, ["n"])]) == [1, 1, 2, 3]
    for wrong in ("text", "x"):
        with pytest.raises(InputError, match=wrong):
            in_order(parts, [wrong])


def test_sequences_count_up_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Sequences({"p": 4})
    assert known.follows("p", 6) == 4
    assert known.follows("p", 5) is None
    known.take("p", 5)
    assert known.follows("p", 6) is None
    assert known.recorded == {"p": 4}
    known.record("p", 5)
    known.record("p", 3)
    assert known.recorded == {"p": 5}
    monkeypatch.setattr(sequences_module, "SENDERS", 1)
    known.take("q", 0)
    assert known.follows("p", 99) is None  # it is not known any more


# ------------------------------------------------------------------------------ schedules


class Lane:
    """A lane over the processes that own it, one after the other: what is staged and what senders
    are known to have sent is lost with each; what is recorded is not."""

    def __init__(self, number: int) -> None:
        self.number, self.writers = number, 0
        self.recorded: list[int] = []
        self.entries: list[tuple[int, int]] = []
        self.split: LiveSplit
        self.replace()

    def replace(self) -> None:
        """The owner dies, and another process goes on."""
        senders = self.split.senders if self.writers else ()
        self.writers += 1
        at = len(self.recorded)
        self.split = LiveSplit(
            SCHEMA, f"p{self.writers}", "lane", "0:lane", None, 0, None, at, BEFORE_ALL
        )
        self.split.knows(senders)
        self.staging = Staging()
        self.sequences = Sequences({name: last for name, last, _ in senders})
        self.pending = 0

    def seal(self, query: str, batch: int, wanted: list[tuple[str, int]]) -> bool:
        """As `Sealing` does; whether the batch is recorded when it is answered."""
        if batch <= self.sequences.recorded.get(query, -1):
            return True
        found = self.staging.taken(self.number, query, wanted)
        if isinstance(found, str):
            return False
        self.pending += 1
        self.split.add(self.pending, in_order(found, []), Sent(query, batch, 0))
        self.recorded += numbers(self.split.take(self.split.wanted()))
        self.sequences.record(query, batch)
        self.staging.drop(query, self.number)
        return True


LANES = 3


def rows_of(batch: int, query: str) -> list[int]:
    """The rows of a batch, which are the same however often it is computed."""
    return [int(query) * 1_000_000 + batch * 1000 + i for i in range(batch % 7 + 1)]


def attempt(
    rng: random.Random, lanes: list[Lane], query: str, names: list[str], mine: list[int]
) -> tuple[str, dict[int, int]]:
    """A task stages its rows in parts, by lane; some parts are sent again. Owners may die."""
    name = f"attempt-{len(names)}"
    names.append(name)
    counts = dict.fromkeys(range(LANES), 0)
    for n in mine:
        lane = lanes[n % LANES]
        for _ in range(1 + (rng.random() < 0.2)):
            assert lane.staging.put(lane.number, query, name, counts[lane.number], rows(n), 0.0)
        counts[lane.number] += 1
        if rng.random() < 0.02:
            rng.choice(lanes).replace()
    return name, {n: parts for n, parts in counts.items() if parts}


def compute(
    rng: random.Random, lanes: list[Lane], query: str, names: list[str], batch: int
) -> list[tuple[str, dict[int, int]]]:
    """Spark computes a batch with some number of partitions: the attempts that count, of all."""
    every = rows_of(batch, query)
    tasks = rng.randrange(1, 5)
    rng.shuffle(every)
    counting = []
    for task in range(tasks):
        mine = every[task::tasks]
        if rng.random() < 0.2:  # a task that fails half way
            attempt(rng, lanes, query, names, mine[: len(mine) // 2])
        one = attempt(rng, lanes, query, names, mine)
        other = attempt(rng, lanes, query, names, mine) if rng.random() < 0.2 else one
        counting.append(rng.choice([one, other]))  # speculation: either may be the first
    return counting


def commit(
    rng: random.Random,
    lanes: list[Lane],
    query: str,
    batch: int,
    attempts: list[tuple[str, dict[int, int]]],
) -> bool:
    """Whether the driver seals the batch in all lanes; it may die on the way, or be refused."""
    for number in sorted({n for _, parts in attempts for n in parts}):
        if rng.random() < 0.05:
            return False
        wanted = [(name, parts.get(number, 0)) for name, parts in attempts]
        if not lanes[number].seal(query, batch, wanted):
            return False
        if rng.random() < 0.05:
            lanes[number].replace()
            # the answer was lost with the owner: the driver asks the next one
            if not lanes[number].seal(query, batch, wanted):
                return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_each_row_of_each_batch_counts_once_whoever_fails(seed: int) -> None:
    rng = random.Random(seed)
    lanes, names = [Lane(n) for n in range(LANES)], list[str]()
    done = {"1": 0, "2": 0}
    zombies: list[tuple[str, int, list[tuple[str, dict[int, int]]]]] = []
    while min(done.values()) < 30:
        query = rng.choice([*done])
        counting = compute(rng, lanes, query, names, done[query])
        if commit(rng, lanes, query, done[query], counting):
            done[query] += 1
        else:
            zombies.append((query, done[query], counting))
        if zombies and rng.random() < 0.2:  # a driver that was thought dead
            commit(rng, lanes, *rng.choice(zombies))
    for lane in lanes:
        wanted = [
            n
            for query, batches in done.items()
            for batch in range(batches)
            for n in rows_of(batch, query)
            if n % LANES == lane.number
        ]
        found = Counter(lane.recorded)
        # A zombie or a driver that was cut short may have sealed the batch that comes next.
        ahead = [n for q, b in done.items() for n in rows_of(b, q) if n % LANES == lane.number]
        assert not found - Counter(wanted + ahead)
        assert not Counter(wanted) - found
