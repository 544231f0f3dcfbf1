"""A stream of a real Redis as a source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError
from raystream.io.subscriptions.redis import number_of
from tests.io.subscriptions.daemons import Daemon
from tests.io.subscriptions.reading import Reader, Reading
from tests.processes import free_port

client = pytest.importorskip("redis", reason="the package redis is not installed")


class Redis(Daemon):
    def __init__(self, folder: Path, *more: str) -> None:
        super().__init__(
            "redis-server", "apt-get install redis-server", folder,
            "--port", "{port}", "--bind", "127.0.0.1", "--dir", "{folder}", "--appendonly", "yes",
            "--appendfsync", "always", *more,
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def add(self, *times: int, **fields: str) -> None:
        with client.Redis.from_url(self.url) as connection:
            for time in times:
                connection.xadd("rooms", fields or {"data": f'{{"time": {time}, "room": "hall"}}'})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    made = Redis(tmp_path)
    yield made
    made.stop()


def times(records: list[Any]) -> list[int]:
    return [record.time for record in records]


def test_another_process_goes_on_after_what_is_recorded(server: Redis) -> None:
    server.add(*range(5))
    first = Reader(rs.io.redis(server.url, "rooms", Reading))
    assert times(first.take(5)) == [0, 1, 2, 3, 4]
    recorded = first.numbers()[2][1]  # and the last two are not
    first.stop()
    server.add(5)
    second = Reader(rs.io.redis(server.url, "rooms", Reading), known=recorded)
    assert times(second.take(3)) == [3, 4, 5]
    server.stop()
    server.start()
    server.add(6)
    assert times(second.take(1)) == [6]
    second.stop()


def test_it_may_begin_with_what_comes(server: Redis) -> None:
    server.add(1)
    reader = Reader(rs.io.redis(server.url, "rooms", Reading, start="latest"))
    assert reader.silent()
    server.add(2)
    assert times(reader.take(1)) == [2]
    reader.stop()


def test_a_server_that_says_something_else_for_a_while_is_waited_for(server: Redis) -> None:
    server.add(1)
    reader = Reader(rs.io.redis(server.url, "rooms", Reading))
    assert times(reader.take(1)) == [1]
    with client.Redis.from_url(server.url) as connection:
        connection.set("rooms", "x")
        assert reader.silent()
        connection.delete("rooms")
    server.add(2)
    assert times(reader.take(1)) == [2]
    reader.stop()


def test_what_cannot_be_is_refused_in_words(server: Redis) -> None:
    server.add(1, other="x")
    with pytest.raises(InputError, match="there is no field 'data'"):
        Reader(rs.io.redis(server.url, "rooms", Reading)).take(1)
    with client.Redis.from_url(server.url) as connection:
        connection.set("text", "x")
    with pytest.raises(InputError, match=r"redis text at .* cannot be read: WRONGTYPE"):
        Reader(rs.io.redis(server.url, "text", Reading)).take(1)
    nobody = rs.io.redis(f"redis://127.0.0.1:{free_port()}", "rooms", Reading, give_up=0.2)
    with pytest.raises(InputError, match=f"redis rooms at {nobody.url} could not be read"):
        Reader(nobody).take(1)
    with pytest.raises(InputError, match=f"redis rooms at {nobody.url} cannot be read: Conn"):
        nobody.check()
    with pytest.raises(ConfigError, match='"earliest" or "latest"'):
        rs.io.redis(server.url, "rooms", Reading, start="now")


def test_who_is_not_let_in_is_told_at_once(tmp_path: Path) -> None:
    server = Redis(tmp_path, "--requirepass", "right")
    try:
        said = f"redis rooms at redis://127.0.0.1:{server.port} was refused"
        for login in ("", ":wrong@"):
            source = rs.io.redis(f"redis://{login}127.0.0.1:{server.port}", "rooms", Reading)
            for read in (source.check, lambda s=source: Reader(s).take(1)):
                with pytest.raises(InputError, match=said) as raised:
                    read()
                assert "wrong@" not in str(raised.value)
    finally:
        server.stop()


def test_ids_become_numbers_that_rise() -> None:
    ids = ["0-1", "0-2", "1-0", "1764380000000-0", "1764380000000-1048575", "1764380000001-0"]
    numbers = [*map(number_of, ids)]
    assert numbers == sorted(numbers) and len({*numbers}) == len(ids) and max(numbers) < 2**63
    with pytest.raises(InputError, match="second part"):
        number_of("1-1048576")
