"""What a keeper writes, lets go and deletes, against a model that has everything."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raystream.state.keeping.files import placed
from raystream.state.keeping.holdings import FilePlace, Holdings, WriteBatch
from tests.examples import examples

BUDGET, FILE = 100, 30


class Keeper:
    """Does what holdings say, with memory and files as dicts."""

    def __init__(self) -> None:
        self.holdings = Holdings(BUDGET, FILE)
        self.memory: dict[int, bytes] = {}
        self.files: dict[int, bytes] = {}
        self.model: dict[int, bytes] = {}

    def add(self, data: bytes) -> int:
        part = self.holdings.add(len(data))
        self.memory[part] = self.model[part] = data
        self.drop(self.holdings.let_go(), ())
        return part

    def drop(self, parts: tuple[int, ...], files: tuple[int, ...]) -> None:
        for part in parts:
            del self.memory[part]
        for file in files:
            del self.files[file]

    def keep_only(self, parts: set[int]) -> None:
        self.model = {n: data for n, data in self.model.items() if n in parts}
        self.drop(*self.holdings.keep_only(parts))

    def read(self, part: int) -> bytes:
        if part in self.memory:
            return self.memory[part]
        place = self.holdings.place(part)
        assert place is not None, "a part that is held is somewhere"
        return self.files[place.file][place.offset : place.offset + place.size]

    def begin(self) -> tuple[WriteBatch, list[bytes]] | None:
        batch = self.holdings.next_batch()
        return None if batch is None else (batch, [self.read(part) for part in batch.parts])

    def end(self, batch: WriteBatch, parts: list[bytes]) -> None:
        self.files[batch.file] = b"".join(parts)
        self.drop(*self.holdings.written(batch, placed(batch.file, parts)))

    def check(self) -> None:
        held = self.holdings
        assert {n: self.read(n) for n in self.model} == self.model
        assert held.memory == sum(map(len, self.memory.values()))
        assert held.disk == sum(map(len, self.files.values()))
        assert {*held.files} == {*self.files}
        assert {*self.memory} <= {*self.model}


def write_all(keeper: Keeper) -> None:
    while (begun := keeper.begin()) is not None:
        keeper.end(*begun)


@examples(200)
@given(st.data())
def test_every_part_that_is_held_is_found(data: Any) -> None:
    keeper, under_way = Keeper(), None
    for i in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["add", "add", "drop", "begin", "end", "fail"])):
            case "add":
                keeper.add(bytes([i]) * data.draw(st.integers(0, 40)))
            case "drop" if keeper.model:
                keeper.keep_only(set(data.draw(st.lists(st.sampled_from([*keeper.model])))))
            case "begin" if under_way is None:
                under_way = keeper.begin()
            case "end" if under_way is not None:
                keeper.end(*under_way)
                under_way = None
            case "fail" if under_way is not None:
                keeper.holdings.failed(under_way[0])
                under_way = None
        keeper.check()
    if under_way is not None:
        keeper.end(*under_way)
    write_all(keeper)
    keeper.check()
    held = keeper.holdings
    assert held.has_room, "what is written makes room"
    live = sum(p.size for n in keeper.model if (p := held.place(n)) is not None)
    assert held.disk <= 2 * live + FILE, "files are no more than twice what is needed of them"


def test_little_is_never_written_and_the_newest_stay_in_memory() -> None:
    keeper = Keeper()
    first = keeper.add(b"a" * 50)
    assert keeper.begin() is None
    parts = [keeper.add(b"b" * 20) for _ in range(10)]
    write_all(keeper)
    assert held_in_memory(keeper, parts[-4:]) and not keeper.holdings.in_memory(first)
    assert keeper.holdings.memory < BUDGET and keeper.files
    keeper.keep_only({parts[-1]})
    assert not keeper.files or keeper.holdings.place(parts[-1]) is not None


def held_in_memory(keeper: Keeper, parts: list[int]) -> bool:
    return all(keeper.holdings.in_memory(part) for part in parts)


def test_without_files_memory_ends_at_the_budget_and_a_part() -> None:
    keeper = Keeper()
    while keeper.holdings.has_room:
        keeper.add(b"c" * 40)
    assert BUDGET <= keeper.holdings.memory < BUDGET + 40
    begun = keeper.begin()
    assert begun is not None
    keeper.holdings.failed(begun[0])
    assert not keeper.holdings.has_room
    again = keeper.begin()
    assert again is not None and again[0].parts == begun[0].parts
    keeper.end(*again)
    assert keeper.holdings.has_room


def test_places_follow_each_other() -> None:
    one, two = placed(7, [b"one", b"three"])
    assert (one.file, one.offset, one.size) == (7, 0, 3) and two.offset == 3
    assert isinstance(one, FilePlace)
