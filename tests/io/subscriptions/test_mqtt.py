"""Topics of a real MQTT broker as a source: Debian's mosquitto."""

from __future__ import annotations

import json
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError
from tests.gates import LIMIT_SECONDS, until
from tests.io.subscriptions.reading import Reader, Reading
from tests.processes import free_port

paho = pytest.importorskip("paho.mqtt.client", reason="the package paho-mqtt is not installed")


class Mosquitto:
    """A broker that can be stopped and started again; it keeps what it has on disk."""

    def __init__(self, folder: Path, access: str = "allow_anonymous true\n") -> None:
        found = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        if not Path(found).exists():
            pytest.skip("mosquitto is not installed: apt-get install mosquitto")
        self.program, self.port = found, free_port()
        self.config = folder / "mosquitto.conf"
        self.config.write_text(
            f"listener {self.port} 127.0.0.1\nuser root\n{access}"
            f"persistence true\npersistence_location {folder}/\nmax_queued_messages 0\n"
        )
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.program, "-c", str(self.config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._answers)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(LIMIT_SECONDS)

    def publish(self, *times: int, room: str = "hall") -> None:
        """Publish with QoS 1, and wait until the broker has it."""
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        sent = [
            client.publish(f"rooms/{room}", json.dumps({"time": t, "room": room}), qos=1)
            for t in times
        ]
        for each in sent:
            each.wait_for_publish(LIMIT_SECONDS)
        client.disconnect()
        client.loop_stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    made = Mosquitto(tmp_path)
    yield made
    made.stop()


def rooms(broker: Mosquitto, **options: Any) -> Any:
    given = {"client": "job", "port": broker.port, **options}
    return rs.io.mqtt("127.0.0.1", "rooms/#", Reading, **given)


def times(records: list[Any]) -> list[int]:
    return [record.time for record in records]


def test_what_was_not_acknowledged_comes_again(broker: Mosquitto) -> None:
    first = Reader(rooms(broker))
    assert first.silent(looks=2)  # it has subscribed
    broker.publish(*range(5))
    assert times(first.take(5)) == [0, 1, 2, 3, 4]
    first.acknowledge()
    broker.publish(5, 6, 7)
    assert times(first.take(3)) == [5, 6, 7]
    first.stop()  # as a process that dies: these three are recorded nowhere
    broker.publish(8)
    second = Reader(rooms(broker))
    assert times(second.take(4)) == [5, 6, 7, 8]
    second.acknowledge()
    second.stop()
    third = Reader(rooms(broker))
    broker.publish(9)
    assert times(third.take(1)) == [9]
    third.stop()


def test_it_goes_on_when_the_broker_was_gone(broker: Mosquitto) -> None:
    reader = Reader(rooms(broker))
    assert reader.silent(looks=2)
    broker.publish(1)
    assert times(reader.take(1)) == [1]
    reader.acknowledge()
    broker.stop()
    broker.start()
    broker.publish(2)
    found = times(reader.take(1))
    while 2 not in found:  # the broker may not have written down that the first was acknowledged
        found += times(reader.take(1))
    assert {*found} <= {1, 2}
    reader.stop()


def test_a_broker_that_takes_no_connection_yet_is_waited_for() -> None:
    unavailable = b"\x20\x02\x00\x03"  # CONNACK, of MQTT 3.1.1

    class Starting(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1024)
            self.request.sendall(unavailable)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        source = rs.io.mqtt("127.0.0.1", "a", Reading, client="a", port=port, give_up=0.3)
        said = r"could not be read for 0\.3 s: the broker takes no connection: Server unavailable"
        with pytest.raises(InputError, match=said):
            Reader(source).take(1)
        server.shutdown()


def test_several_splits_share_a_subscription(broker: Mosquitto) -> None:
    source = rooms(broker, splits=2)
    reads = [source.read(split, 0) for split in source.splits()]
    for read in reads:
        assert len(next(read)[1]) == 0
    broker.publish(*range(20))
    found: list[list[int]] = [[], []]

    def all_there() -> bool:
        for times_, read in zip(found, reads, strict=True):
            times_ += times(next(read)[1].records())
        return sum(map(len, found)) >= 20

    until(all_there)
    assert sorted(found[0] + found[1]) == [*range(20)]
    assert all(found)
    for read in reads:
        read.close()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mqtt\(client=''\): text"):
        rs.io.mqtt("x", "rooms/#", Reading, client="")
    with pytest.raises(ConfigError, match="splits"):
        rs.io.mqtt("x", "rooms/#", Reading, client="a", splits=0)
    port = free_port()
    nobody = rs.io.mqtt("127.0.0.1", "a", Reading, client="a", port=port, give_up=0.2)
    place = f"mqtt a at mqtt://127.0.0.1:{port}"
    with pytest.raises(InputError, match=rf"{place} could not be read for 0\.2 s"):
        Reader(nobody).take(1)
    with pytest.raises(InputError, match=f"{place} cannot be read: ConnectionRefusedError"):
        nobody.check()


def test_a_check_neither_ends_the_session_of_a_job_nor_leaves_one(broker: Mosquitto) -> None:
    source = rs.io.mqtt("127.0.0.1", "rooms/#", Reading, client="looked", port=broker.port)
    assert source.check() == f"mqtt rooms/# at mqtt://127.0.0.1:{broker.port} can be read"
    broker.publish(1)  # nobody has subscribed yet, so nobody keeps it
    reader = Reader(source)
    assert reader.silent()
    assert source.check() == f"mqtt rooms/# at mqtt://127.0.0.1:{broker.port} can be read"
    broker.publish(2)
    assert [r.time for r in reader.take(1)] == [2]
    reader.stop()


def test_who_is_not_let_in_is_told_at_once(tmp_path: Path) -> None:
    """A broker that lets nobody in without a password, and knows none."""
    (tmp_path / "passwords").touch()
    broker = Mosquitto(tmp_path, f"password_file {tmp_path}/passwords\nallow_anonymous false\n")
    try:
        for login in ({}, {"user": "ann", "password": "battery"}):
            source = rooms(broker, **login)
            for read in (source.check, lambda s=source: Reader(s).take(1)):
                said = f"mqtt rooms/# at mqtt://127.0.0.1:{broker.port} was refused: Not authorized"
                with pytest.raises(InputError, match=said) as raised:
                    read()
                assert "battery" not in str(raised.value) and raised.value.hint
    finally:
        broker.stop()
