"""Records of a stream, at least once: against a model of Kinesis."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, OutputError
from tests.io.kinesis.model import UNREACHABLE, Make, Stream, refused, stream

__all__ = ["stream"]


class Word(NamedTuple):
    word: str
    n: int


class Tag(NamedTuple):
    tag: str | None


ROWS = [Word("abc"[i % 3], i) for i in range(24)]


def there(stream: Stream) -> list[tuple[str, int]]:
    """Keys and numbers of what was written, by shard and in order."""
    records = [r for shard in stream.shards.values() for r in shard.records]
    return [(r["PartitionKey"], json.loads(r["Data"])["n"]) for r in records]


def run(rows: list[Word], **given: Any) -> None:
    flow = rs.Flow("words", key_groups=4)
    flow.source(rs.io.iterable(rows, Word)).to(rs.io.kinesis("words", **given))
    flow.run()


def test_records_go_under_their_keys(stream: Make) -> None:
    made = stream(3)
    run(ROWS, key="word")
    found = there(made)
    assert sorted(found) == sorted((r.word, r.n) for r in ROWS)
    for key in "abc":
        assert [n for k, n in found if k == key] == [r.n for r in ROWS if r.word == key]


def test_without_a_key_they_are_spread(stream: Make) -> None:
    made = stream(2)
    run([*ROWS, *ROWS])
    assert sorted(n for _, n in there(made)) == sorted([*range(24), *range(24)])
    assert all(shard.records for shard in made.shards.values())


def test_none_is_lost_whatever_dies(stream: Make) -> None:
    """Some may be there twice: it is at least once."""
    made, again = stream(2), [0]

    def clear() -> None:
        for shard in made.shards.values():
            shard.records.clear()

    def read() -> set[Word]:
        found = [json_word(r) for shard in made.shards.values() for r in shard.records]
        again.append(len(found) - len({*found}))
        return {*found}

    rs.testing.check_sink(
        lambda: rs.io.kinesis("words", key="word"), ROWS, read=read, clear=clear,
        expected=lambda rows: rows, examples=6,
    )  # fmt: skip
    assert max(again) > 0


def json_word(record: dict[str, Any]) -> Word:
    return Word(**json.loads(record["Data"]))


def test_what_was_not_taken_is_sent_again(stream: Make) -> None:
    made = stream()
    made.refusing += ["ProvisionedThroughputExceededException"] * 5 + ["InternalFailure"]
    run(ROWS[:8], key="word")
    assert sorted(n for _, n in there(made)) == [*range(8)]
    made.failing += [UNREACHABLE, refused("ServiceUnavailable", 503)]
    run(ROWS[8:10], key="word", wait=30)
    assert sorted(n for _, n in there(made)) == [*range(10)]


def test_requests_are_not_larger_than_kinesis_takes(stream: Make) -> None:
    made = stream()
    run([Word("a" * (n % 200 + 1), n) for n in range(1201)], key="word")
    assert sorted(n for _, n in there(made)) == [*range(1201)]  # the model refuses larger ones
    run([Word("x" * 250, n) for n in range(3)])
    big = rs.Flow("big")
    big.source(rs.io.iterable([Word("y" * (1 << 20), n) for n in range(9)], Word)).to(
        rs.io.kinesis("words")
    )
    big.run()
    assert made.asked.count("put_records") >= 3 + 1 + 3


def test_what_cannot_be_written_ends_the_job_in_words(stream: Make) -> None:
    made = stream()
    made.refusing.append("ValidationException")
    with pytest.raises(OutputError, match="does not take a record: ValidationException"):
        run(ROWS[:1])
    made.failing.append(refused("ResourceNotFoundException"))
    with pytest.raises(OutputError, match="stream words cannot be written"):
        run(ROWS[:1])
    made.refusing += ["ProvisionedThroughputExceededException"] * 9
    with pytest.raises(OutputError, match="has not taken 1 records within 0 s"):
        run(ROWS[:1], wait=0)
    made.refusing.clear()
    for word in ("", "x" * 257):
        with pytest.raises(OutputError, match=f"one of 'word' has {len(word)}"):
            run([Word(word, 1)], key="word")


def test_what_does_not_fit_is_refused_while_the_flow_is_built(stream: Make) -> None:
    stream()
    flow = rs.Flow("tags")
    tags = flow.source(rs.io.iterable([Tag("x")], Tag))
    for key in ("tag", "none"):
        with pytest.raises(GraphError, match="a field of Tag that is a str or an int"):
            tags.to(rs.io.kinesis("tags", key=key))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"start": "now"}, "where to begin"),
        ({"end": "never"}, '"latest"; None reads on'),
        ({"more": -1}, "more"),
        ({"every": 0}, "must be above 0"),
        ({"wait": -1}, "must be not below 0"),
        ({"key": "word"}, "is for streams that are written"),
        ({"bad": "skip"}, '"refuse" or "stream"'),
        ({"region": 1}, "name of a region"),
        ({"format": "json"}, "a format of rs.io.formats"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rs.io.kinesis("words", Word, **given)
    with pytest.raises(ConfigError, match="the name of a stream, or its ARN"):
        rs.io.kinesis("no/words", Word)
    with pytest.raises(ConfigError, match="is for streams that are read"):
        rs.io.kinesis("words", start="latest")  # type: ignore[call-overload]
