"""Streams in and out against servers that speak as Kinesis does: moto, and kinesalite if it is
installed, which also closes shards."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

import raystream as rs
from raystream.errors import InputError
from raystream.io.kinesis import source
from raystream.io.kinesis.shards import END
from tests.gates import until
from tests.io.kinesis.test_kinesis_source import Reading
from tests.io.subscriptions.daemons import Daemon
from tests.processes import free_port


class Word(NamedTuple):
    word: str
    n: int


ROWS = [Word("abcdefg"[i % 7], i) for i in range(700)]


def kinesalite(folder: Path) -> Daemon:
    """Its command would listen for everybody."""
    there = ["node", "-e", "require.resolve('kinesalite')"]
    found = (
        shutil.which("node")
        and not subprocess.run(there, check=False, capture_output=True).returncode
    )
    if not found:
        pytest.skip("kinesalite is not installed: npm install kinesalite, and set NODE_PATH")
    options = "{{createStreamMs: 20, updateStreamMs: 20}}"
    return Daemon(
        "node", "", folder,
        "-e", f"require('kinesalite')({options}).listen({{port}}, '127.0.0.1')",
    )  # fmt: skip


@pytest.fixture(params=["moto", "kinesalite"])
def kinesis(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A client of a server."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setattr(source, "LIST_SECONDS", 0.2)
    server: Any
    if request.param == "moto":
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
        server.start()
        _, port = server.get_host_and_port()
    else:
        server = kinesalite(tmp_path)
        port = server.port
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", f"http://127.0.0.1:{port}")
    client = boto3.client("kinesis")
    yield client
    client.close()
    server.stop()


def made(client: Any, shards: int) -> str:
    name = f"words-{uuid.uuid4().hex}"  # moto keeps what was there before in this process
    client.create_stream(StreamName=name, ShardCount=shards)
    ready(client, name)
    return name


def ready(client: Any, name: str) -> None:
    def active() -> bool:
        found = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
        return bool(found["StreamStatus"] == "ACTIVE")

    until(active)


def put(client: Any, name: str, rows: list[Word]) -> None:
    for at in range(0, len(rows), 500):
        entries = [
            {"PartitionKey": r.word, "Data": json.dumps(r._asdict()).encode()}
            for r in rows[at : at + 500]
        ]
        client.put_records(StreamName=name, Records=entries)


def test_records_go_in_and_out(kinesis: Any) -> None:
    """What one job has written another one reads, all of it and once."""
    name = made(kinesis, 3)
    flow = rs.Flow("in", key_groups=8)
    flow.source(rs.io.iterable(ROWS, Word)).to(rs.io.kinesis(name, key="word"))
    flow.run()
    assert rs.io.kinesis(name).check().endswith("has 3 open shards")
    given = rs.io.kinesis(name, Word, end="latest", every=0.05)
    assert given.check() == "3 open shards; read a record (Word)"
    sink = rs.testing.Collect()
    flow = rs.Flow("out", key_groups=8)
    flow.source(given, epochs=rs.by_arrival()).to(sink)
    flow.run()
    found = sink.records()
    assert sorted(found) == sorted(ROWS)
    for key in "abcdefg":  # the order of a key is that of its shard
        assert [r.n for r in found if r.word == key] == [r.n for r in ROWS if r.word == key]


def test_a_reader_goes_on_after_what_was_read(kinesis: Any) -> None:
    name = made(kinesis, 1)
    put(kinesis, name, ROWS[:10])
    first = Reading(rs.io.kinesis(name, Word, every=0.05))
    assert first.take(10) == [*range(10)]
    put(kinesis, name, ROWS[10:15])
    again = Reading(rs.io.kinesis(name, Word, every=0.05), position=first.position)
    assert again.take(5) == [*range(10, 15)]
    assert again.some(3) == []


@pytest.mark.parametrize("kinesis", ["moto"], indirect=True)  # the other one does not answer
def test_a_job_may_begin_with_what_comes_now(kinesis: Any) -> None:
    name = made(kinesis, 1)
    put(kinesis, name, ROWS[:5])
    time.sleep(1.1)  # moments are whole seconds
    reader = Reading(rs.io.kinesis(name, Word, every=0.05, start="latest"))
    assert reader.some(2) == []
    put(kinesis, name, ROWS[5:8])
    assert reader.take(3) == [5, 6, 7]


def test_a_stream_that_is_not_there_is_said(kinesis: Any) -> None:
    with pytest.raises(InputError, match=r"none at http.* could not be asked for its shards"):
        rs.io.kinesis("none", Word).splits()


@pytest.mark.parametrize("kinesis", ["kinesalite"], indirect=True)
def test_a_stream_is_resharded_while_it_is_read(kinesis: Any) -> None:
    """Split, then merged: each record comes once, and closed shards end."""
    name = made(kinesis, 1)
    given = rs.io.kinesis(name, Word, every=0.05, more=3)
    readers = [Reading(given, n) for n in range(4)]
    put(kinesis, name, ROWS[:100])
    assert readers[0].take(100) == [*range(100)]
    kinesis.split_shard(
        StreamName=name, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
    )
    ready(kinesis, name)
    put(kinesis, name, ROWS[100:300])
    assert readers[0].rest() == [] and readers[0].position == END
    parts: list[list[int]] = [[], []]
    while sum(map(len, parts)) < 200:
        for part, reader in zip(parts, readers[1:3], strict=True):
            part += reader.some(1)
    assert all(part == sorted(part) and part for part in parts)
    kinesis.merge_shards(
        StreamName=name, ShardToMerge="shardId-000000000001",
        AdjacentShardToMerge="shardId-000000000002",
    )  # fmt: skip
    ready(kinesis, name)
    put(kinesis, name, ROWS[300:400])
    assert [r.rest() for r in readers[1:3]] == [[], []]
    assert readers[3].take(100) == [*range(300, 400)]
    assert sorted(parts[0] + parts[1]) == [*range(100, 300)]
