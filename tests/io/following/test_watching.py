"""Which files are whole, and which were taken: without clocks and files."""

from __future__ import annotations

import random

import pytest

from raystream.io.following.looking import Seen
from raystream.io.following.watching import FLOOR, Memory, Settling, sequence

LONG = 1 << 60


def test_a_file_is_whole_when_it_has_stayed_as_it_is() -> None:
    settling = Settling(2.0)
    growing = {"a": Seen(1, 5)}
    assert settling.settled(growing, 0.0, LONG) == []
    assert settling.settled({"a": Seen(2, 6)}, 1.9, LONG) == []
    assert settling.settled({"a": Seen(2, 6)}, 3.8, LONG) == []
    assert settling.settled({"a": Seen(2, 6)}, 3.9, LONG) == ["a"]
    assert settling.settled({}, 4.0, LONG) == []
    assert settling.settled({"a": Seen(2, 6)}, 9.0, LONG) == [], "it went away meanwhile"


def test_files_come_in_the_order_of_their_times_and_none_from_the_future() -> None:
    settling = Settling(0.0)
    found = {"c": Seen(1, 1), "a": Seen(1, 2), "b": Seen(1, 2), "later": Seen(1, 10)}
    assert settling.settled(found, 0.0, 9) == ["c", "a", "b"]
    assert settling.settled(found, 0.0, 10) == ["c", "a", "b", "later"]


def test_a_file_is_taken_piece_by_piece_and_once() -> None:
    memory, file = Memory(), Seen(1, 7)
    assert memory.wants("a", file) and memory.begin("a", file) == ("7:a", 0)
    memory.took("a", "7:a", sequence(0, last=False), file)
    assert memory.wants("a", file) and memory.unfinished() == ["a"]
    other = Memory()
    other.learn({"7:a": sequence(0, last=False)})
    assert other.begin("a", file) == ("7:a", 1)
    other.learn({"7:a": sequence(1, last=True)})
    assert not other.wants("a", file) and other.unfinished() == []
    assert not other.wants("a", Seen(2, 9)), "a name is taken once, whatever becomes of it"


def test_what_is_recorded_may_come_in_any_order() -> None:
    memory, file = Memory(), Seen(1, 7)
    assert [sequence(2, last=last) for last in (False, True)] == [4, 5]
    memory.learn({"7:a": sequence(2, last=True)})
    memory.learn({"7:a": sequence(1, last=False)})  # of another process, which was behind
    assert not memory.wants("a", file)
    memory.learn({"9:a": sequence(0, last=False)})  # another file of that name
    assert memory.begin("a", Seen(1, 9)) == ("9:a", 1)


def test_the_floor_is_said_once_when_it_rises() -> None:
    memory = Memory(kept=2)
    for n in range(3):
        assert memory.risen() is None
        memory.took(f"{n}", f"{n}:{n}", sequence(0, last=True), Seen(1, n))
    assert memory.risen() == 1 and memory.risen() is None
    other = Memory()
    other.learn({FLOOR: 1})
    assert other.risen() is None, "it is recorded"
    assert not other.wants("0", Seen(1, 0)) and other.wants("2", Seen(1, 2))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_forgotten_is_not_taken_again(seed: int) -> None:
    """Processes take over from each other, which know what a bounded record holds."""
    rng = random.Random(seed)
    kept, known = 20, 30
    record: dict[str, int] = {}
    memory, taken, clock = Memory(kept), [], 0
    files: dict[str, Seen] = {}

    def write(sender: str, last: int) -> None:
        record.pop(sender, None)
        record[sender] = last
        while len(record) > known:
            del record[next(iter(record))]

    for _ in range(300):
        clock += rng.randrange(3)
        files[f"f{len(files)}"] = Seen(1, clock)
        if rng.random() < 0.1:
            memory = Memory(kept)
            memory.learn(dict(record))
        for name in sorted(n for n, f in files.items() if memory.wants(n, f)):
            if rng.random() < 0.3:
                break
            sender, _ = memory.begin(name, files[name])
            write(sender, sequence(0, last=True))
            memory.took(name, sender, sequence(0, last=True), files[name])
            taken.append(name)
            if (floor := memory.risen()) is not None:
                write(FLOOR, floor)
        assert len(memory.names) <= kept + 1
    assert len(taken) == len(set(taken)) > 250
    left = {n for n, f in files.items() if f.changed > memory.floor} - set(taken)
    assert all(memory.wants(n, files[n]) for n in left), "what is newer than the floor comes"
