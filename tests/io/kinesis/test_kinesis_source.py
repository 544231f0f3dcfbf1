"""Shards as splits: against a model of Kinesis that knows of closed and lost shards."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import InputError
from raystream.io.kinesis.shards import END, Listing, Shard, last_sequence, spread
from tests.io.kinesis.model import BASE, BEGIN, UNREACHABLE, Make, Stream, later, refused, stream
from tests.registry_server import RegistryServer

__all__ = ["stream"]


class Word(NamedTuple):
    word: str
    n: int


ROWS = [Word("abc"[i % 3], i) for i in range(24)]


def put(stream: Stream, rows: list[Word], shard: int | None = None) -> None:
    for row in rows:
        stream.put(row.word, f'{{"word": "{row.word}", "n": {row.n}}}'.encode(), shard)


def kinesis(**given: Any) -> Any:
    return rs.io.kinesis("words", Word, **{"every": 0.01, "wait": 5, **given})


class Reading:
    """A process that reads one split."""

    def __init__(self, source: Any, number: int = 0, position: int | None = None) -> None:
        (split,) = (s for s in source.splits() if s.name.endswith(f"{number:012}"))
        self.source = source
        self.position = split.begin if position is None else position
        self._read: Iterator[Any] = source.read(split, self.position)

    def take(self, records: int) -> list[int]:
        found: list[int] = []
        while len(found) < records:
            found += self.some(1)
        return found

    def some(self, batches: int) -> list[int]:
        """What the next batches have."""
        found: list[int] = []
        for position, batch, ends in itertools.islice(self._read, batches):
            self.position = position
            assert len(ends) == len(batch)
            assert not len(ends) or ends[-1] == self.position
            found += [r.n for r in batch.records()]
        return found

    def rest(self) -> list[int]:
        """All up to the end of the split."""
        return self.some(1000)


def test_each_record_comes_once_whatever_dies(stream: Make) -> None:
    """Positions have more than 64 bits, and answers have other records each time."""

    def begin() -> None:
        made = stream(2)
        for n in range(2):
            put(made, ROWS[n::2], n)

    rs.testing.check_source(
        lambda: kinesis(end="latest"), expected=ROWS, begin=begin, every_call=False, examples=15
    )


def test_positions_are_sequence_numbers(stream: Make) -> None:
    put(stream(), ROWS[:5])
    first = Reading(kinesis())
    assert first.take(4) == [0, 1, 2, 3, 4]
    assert last_sequence(first.position) == BASE + 4 * 2**70
    assert Reading(kinesis(), position=first.position).some(3) == []


def test_shards_that_follow_a_closed_one_are_read_from_their_first_record(stream: Make) -> None:
    made = stream()
    put(made, ROWS[:4])
    source = kinesis(more=2)
    splits = [s.name for s in source.splits()]
    assert len(splits) == 3
    assert [source.comes_later(s) for s in sorted(splits)] == [False, True, True]
    copy = pickle.loads(pickle.dumps(source))
    parent, children = Reading(copy), [Reading(copy, n) for n in (1, 2)]
    assert parent.take(4) == [0, 1, 2, 3]
    assert [c.some(3) for c in children] == [[], []]
    made.split(0)
    put(made, ROWS[4:12])
    assert parent.rest() == [] and parent.position == END
    assert sorted(children[0].some(20) + children[1].some(20)) == [*range(4, 12)]
    assert Reading(copy, position=END).rest() == []


def test_a_shard_without_a_split_keeps_the_job_and_is_read_when_it_is_resumed(
    stream: Make,
) -> None:
    made = stream()
    put(made, ROWS[:2])
    parent = Reading(kinesis(more=0))
    assert parent.take(2) == [0, 1]
    made.split(0)
    put(made, ROWS[2:6])
    with pytest.warns(RuntimeWarning, match=r"no room for shards after shardId-0+\. Stop the job"):
        assert parent.some(50) == []
    assert parent.some(50) == [] and parent.position == END  # it does not end
    resumed = kinesis(more=0)
    assert sorted(s.name[-1] for s in resumed.splits()) == ["0", "1", "2"]
    assert Reading(resumed, 0, END).rest() == []
    assert sorted(Reading(resumed, 1).some(9) + Reading(resumed, 2).some(9)) == [2, 3, 4, 5]


def test_shards_that_are_gone_stay_splits_and_are_over(stream: Make) -> None:
    """A job that goes on has all splits that it had."""
    made = stream()
    made.split(0)
    put(made, ROWS[:1], 2)
    made.expire(0)
    source = kinesis(more=0, start="latest")
    assert len(source.splits()) == 3
    assert Reading(source, 0).rest() == []
    flow = rs.Flow("words")
    found = rs.testing.Collect()
    flow.source(kinesis(more=0, end="latest"), epochs=rs.by_arrival()).to(found)
    flow.run()
    assert found.records() == ROWS[:1]


@pytest.mark.parametrize("position", [0, 1 + 10**12, 2**64 + 5])
def test_a_shard_that_goes_before_it_was_read_ends_the_job(stream: Make, position: int) -> None:
    """Also where nothing of it was read yet."""
    made = stream()
    put(made, ROWS[:1])
    reading = Reading(kinesis(), position=position)
    made.split(0)
    made.expire(0)
    with pytest.raises(InputError, match="gone by retention before all of it was read"):
        reading.some(1)


def test_it_warns_where_records_may_have_been_lost(stream: Make) -> None:
    made = stream()
    put(made, ROWS[:3])
    first = Reading(kinesis())
    assert first.take(3) == [0, 1, 2]
    put(made, ROWS[3:6])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Reading(kinesis(), position=first.position).take(3) == [3, 4, 5]
    made.expire(0, records=4)
    with pytest.warns(RuntimeWarning, match="not kept there any more"):
        assert Reading(kinesis(), position=first.position).take(2) == [4, 5]


@pytest.mark.parametrize("start", ["latest", BEGIN])
def test_a_job_begins_where_it_is_told(stream: Make, start: Any) -> None:
    made = stream()
    later(made, -60)
    put(made, ROWS[:2])
    later(made, 60)
    source = Reading(kinesis(start=start))
    assert source.some(2) == []
    put(made, ROWS[2:4])
    assert source.take(2) == [2, 3]
    again = Reading(kinesis(start=start), position=Reading(kinesis(start=start)).position)
    assert again.take(2) == [2, 3]


def test_an_input_that_ends_has_what_was_there(stream: Make) -> None:
    made = stream()
    put(made, ROWS[:4])
    source = Reading(kinesis(end="latest"))
    later(made, 5)
    put(made, ROWS[4:6])
    assert source.rest() == [0, 1, 2, 3]


def test_what_passes_is_waited_for(stream: Make) -> None:
    made = stream()
    put(made, ROWS[:6])
    source = Reading(kinesis())
    made.failing += [
        UNREACHABLE, refused("ProvisionedThroughputExceededException"), refused("", 503)
    ]  # fmt: skip
    assert source.take(3) == [0, 1, 2]
    made.failing.append(refused("ExpiredIteratorException"))
    assert source.take(3) == [3, 4, 5]


def test_what_does_not_pass_ends_the_job_in_words(stream: Make) -> None:
    made = stream()
    source = Reading(kinesis())
    source.some(1)
    made.failing.append(refused("AccessDeniedException"))
    with pytest.raises(InputError, match=r"stream words does not let shardId-0+ be read: .*says"):
        source.some(50)
    made.failing.append(refused("ResourceNotFoundException"))
    with pytest.raises(InputError, match="could not be asked for its shards") as raised:
        kinesis().splits()
    assert "Make the stream first" in str(raised.value.hint)
    made.failing += [UNREACHABLE] * 99
    with pytest.raises(InputError, match="could not be asked"):
        kinesis(wait=0).splits()


def test_data_that_are_no_records_are_refused_with_their_place_or_kept_apart(stream: Make) -> None:
    made = stream()
    made.put("a", b"oops")
    put(made, ROWS[:1])
    with pytest.raises(InputError, match=f"shardId-0+, sequence {BASE}"):
        Reading(kinesis()).some(5)
    source = kinesis(bad="stream", end="latest")
    found = [r for _, b, *_ in source.read(source.splits()[0], 0) for r in b.records()]
    assert [(r.raystream_data, r.n) for r in found] == [(b"oops", 0), (None, 0)]


def test_open_shards_are_spread_over_the_splits() -> None:
    """Splits that follow each other go to one instance: the newest shards are the open ones."""
    shards = {n: Shard(n, n >= 12) for n in range(8, 16)}
    order = spread(Listing(shards, BEGIN), 4)
    assert sorted(order) == [*range(20)]
    assert [sum(12 <= n < 16 for n in order[i : i + 5]) for i in range(0, 20, 5)] == [1, 1, 1, 1]


def test_check_says_what_is_there(stream: Make) -> None:
    made = stream(2)
    assert kinesis().check() == "2 open shards; no records now"
    put(made, ROWS[:1])
    assert kinesis().check() == "2 open shards; read a record (Word)"


def test_check_asks_the_registry(stream: Make, registry: RegistryServer) -> None:
    stream(1)
    form = rs.io.formats.avro(registry=registry.settings)
    assert rs.io.kinesis("words", Word, format=form).check().endswith(" answers")
    form = rs.io.formats.avro(registry=registry.settings, subject="words")
    with pytest.raises(InputError, match="has no subject words"):
        rs.io.kinesis("words", Word, format=form).check()
    sink = rs.io.kinesis("words", format=form)
    sink.accept(Word)
    assert sink.check().endswith("has no subject words yet: the first message makes it")
