"""A queue of a real RabbitMQ as a source: Debian's rabbitmq-server."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import ConfigError, InputError, JobError, caller
from raystream.io.subscriptions.rabbitmq import _serve
from raystream.io.subscriptions.waiting import taken
from tests.gates import LIMIT_SECONDS, until
from tests.io.subscriptions.reading import Reader, Reading
from tests.processes import free_port

pika = pytest.importorskip("pika", reason="the package pika is not installed")


class Rabbit:
    """A broker that can be stopped and started again; it keeps what it has on disk."""

    def __init__(self, folder: Path) -> None:
        # The command of /usr/sbin changes the user.
        there = ["/usr/lib/rabbitmq/bin/rabbitmq-server", shutil.which("rabbitmq-server")]
        program = next((path for path in there if path and Path(path).exists()), None)
        erl = shutil.which("erl") or "/usr/bin/erl"
        if program is None or not Path(erl).exists():
            pytest.skip("RabbitMQ is not installed: apt-get install rabbitmq-server")
        self.program, self.folder, self.port = program, folder, free_port()
        self.epmd_port = free_port()
        local = {"ERL_EPMD_PORT": str(self.epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        epmd = Path(erl).with_name("epmd")
        self.env = {
            **os.environ, **local,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
        }  # fmt: skip
        self._names = self._begun(str(epmd))
        self.start()

    def _begun(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, env=self.env, cwd=self.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = self._begun(self.program)
        until(self._answers)

    def _answers(self) -> bool:
        with suppress(Exception):
            self.connection().close()
            return True
        return False

    def stop(self) -> None:
        """Kill it, with all that it has begun."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(LIMIT_SECONDS)

    def remove(self) -> None:
        self.stop()
        self._names.kill()
        self._names.wait(LIMIT_SECONDS)

    def connection(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(self.url))

    def has(self, name: str) -> bool:
        """Whether there is a queue."""
        with self.connection() as connection:
            try:
                connection.channel().queue_declare(name, passive=True)
            except pika.exceptions.ChannelClosedByBroker:
                return False
        return True

    def queue(self, name: str) -> str:
        with self.connection() as connection:
            connection.channel().queue_declare(name, durable=True)
        return name

    def send(self, name: str, *times: int, ids: bool = True, body: bytes | None = None) -> None:
        """Publish, and wait until the broker has it."""
        with self.connection() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for time in times:
                told = pika.BasicProperties(
                    delivery_mode=2, message_id=f"{name}-{time}" if ids else None
                )
                data = body or json.dumps({"time": time, "room": "hall"}).encode()
                channel.basic_publish("", name, data, told)

    def left(self, name: str) -> int:
        """How many messages are not acknowledged; asks while there is no consumer."""
        with self.connection() as connection:
            found = connection.channel().queue_declare(name, passive=True)
            return int(found.method.message_count)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    made = Rabbit(tmp_path_factory.mktemp("rabbit"))
    yield made
    made.remove()


def test_messages_are_acknowledged_when_they_are_recorded(rabbit: Rabbit) -> None:
    name = rabbit.queue("acknowledged")
    rabbit.send(name, *range(10))
    source = rs.io.rabbitmq(rabbit.url, name, Reading, prefetch=4)
    assert source.check().endswith(" has 10 messages")
    reader = Reader(source)
    found = [r.time for r in reader.take(4)]
    assert found == [0, 1, 2, 3]
    assert reader.silent()  # no more than `prefetch` come
    reader.acknowledge()
    assert [r.time for r in reader.take(4)] == [4, 5, 6, 7]
    reader.stop()
    until(lambda: rabbit.left(name) == 6)


@pytest.mark.parametrize("ids", [True, False])
def test_what_was_not_acknowledged_comes_again(rabbit: Rabbit, ids: bool) -> None:
    """Under the same id, by which the job knows it, if it has one."""
    name = rabbit.queue(f"again-{ids}")
    rabbit.send(name, 1, 2, ids=ids)
    first = Reader(rs.io.rabbitmq(rabbit.url, name, Reading))
    assert [r.time for r in first.take(2)] == [1, 2]
    first.stop()
    second = Reader(rs.io.rabbitmq(rabbit.url, name, Reading))
    assert [r.time for r in second.take(2)] == [1, 2]
    assert second.numbers() == first.numbers() == ([(f"{name}-{n}", 1) for n in (1, 2)] * ids)
    second.acknowledge()
    second.stop()
    until(lambda: rabbit.left(name) == 0)


def test_messages_with_and_without_an_id_may_follow_each_other(rabbit: Rabbit) -> None:
    name = rabbit.queue("mixed")
    for time in range(6):
        rabbit.send(name, time, ids=time % 3 == 0)
    reader = Reader(rs.io.rabbitmq(rabbit.url, name, Reading))
    assert [r.time for r in reader.take(6)] == [*range(6)]
    assert reader.numbers() == [("mixed-0", 1), ("mixed-3", 1)]
    reader.stop()


class EnoughError(Exception):
    """Ends a job whose input has no end."""


def test_a_job_counts_what_comes_again_once(rabbit: Rabbit) -> None:
    """The publisher has sent each message twice, under one id."""
    name = rabbit.queue("twice")
    for _ in range(2):
        rabbit.send(name, *range(20))
    rabbit.send(name, 99)
    seen: list[int] = []

    def note(reading: Reading) -> None:
        seen.append(reading.time)
        if reading.time == 99:
            raise EnoughError

    flow = rs.Flow("rooms")
    source = rs.io.rabbitmq(rabbit.url, name, Reading)
    flow.source(source, epochs=rs.by_arrival(seconds=0.01)).to(rs.io.callable(note, each=True))
    with pytest.raises(JobError, match="EnoughError"):
        flow.run()
    assert seen == [*range(20), 99]


def test_a_broker_that_is_killed_is_waited_for(rabbit: Rabbit) -> None:
    name = rabbit.queue("killed")
    rabbit.send(name, 1)
    reader = Reader(rs.io.rabbitmq(rabbit.url, name, Reading, give_up=120))
    assert [r.time for r in reader.take(1)] == [1]
    rabbit.stop()
    assert reader.silent()
    rabbit.start()
    kept = rabbit.has(name)
    if not kept:  # one of ten queues that were made a moment before the broker is killed is lost
        rabbit.queue(name)
    rabbit.send(name, 2)
    expected = [1, 2] if kept else [2]
    assert [r.time for r in reader.take(len(expected))] == expected
    reader.acknowledge()
    reader.stop()
    until(lambda: rabbit.left(name) == 0)


def test_a_queue_that_is_gone_for_a_while_is_waited_for(rabbit: Rabbit) -> None:
    """So it is for a moment when a broker was started again."""
    name = rabbit.queue("gone")
    rabbit.send(name, 1)
    reader = Reader(rs.io.rabbitmq(rabbit.url, name, Reading, give_up=120))
    assert [r.time for r in reader.take(1)] == [1]
    with rabbit.connection() as connection:
        connection.channel().queue_delete(name)
    assert reader.silent()
    rabbit.queue(name)
    rabbit.send(name, 2)
    assert [r.time for r in reader.take(1)] == [2]
    reader.stop()


def test_a_message_that_is_no_record_is_recorded_as_such(rabbit: Rabbit) -> None:
    name = rabbit.queue("bad")
    rabbit.send(name, 1)
    rabbit.send(name, 2, body=b"oops")
    reader = Reader(rs.io.rabbitmq(rabbit.url, name, Reading, bad="stream"))
    assert [(r.raystream_data, r.time) for r in reader.take(2)] == [(None, 1), (b"oops", 0)]
    reader.stop()
    assert len(rs.io.rabbitmq(rabbit.url, name, Reading, bad="stream").stages(caller()[0])) == 2


def test_what_the_broker_refuses_is_said_without_secrets(rabbit: Rabbit) -> None:
    for url, name, said in [
        (rabbit.url, "none", "rabbitmq none at amqp://127.* cannot be read: .*no queue 'none'"),
        (
            rabbit.url.replace("guest@", "wrong@"),
            "none",
            "at amqp://127.* was refused: .*ACCESS_REFUSED",
        ),
    ]:
        with pytest.raises(InputError, match=said) as raised:
            Reader(rs.io.rabbitmq(url, name, Reading)).take(1)
        assert "wrong" not in str(raised.value)
        with pytest.raises(InputError, match=said):
            rs.io.rabbitmq(url, name, Reading).check()


def test_a_queue_that_another_consumer_has_alone_is_said(rabbit: Rabbit) -> None:
    name = rabbit.queue("exclusive")
    with rabbit.connection() as connection:
        connection.channel().basic_consume(name, lambda *_: None, exclusive=True)
        with pytest.raises(InputError, match=r"was refused: .*exclusive use"):
            Reader(rs.io.rabbitmq(rabbit.url, name, Reading)).take(1)


def test_an_error_that_nothing_expects_ends_the_wait() -> None:
    class Broken:
        def process_data_events(self, time_limit: float) -> None:
            raise RuntimeError("odd")

        def close(self) -> None:
            pass

    came: queue.Queue[Any] = queue.Queue()
    _serve(Broken(), came, threading.Event())
    with pytest.raises(RuntimeError, match="odd"):
        taken(came)


def test_a_broker_that_is_not_there_is_given_up() -> None:
    url = f"amqp://guest:secret@127.0.0.1:{free_port()}"
    reader = Reader(rs.io.rabbitmq(url, "rooms", Reading, give_up=0.3))
    with pytest.raises(InputError, match=r"not be read for 0\.3 s: no connection to 127") as raised:
        reader.take(1)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("args", "given", "said"),
    [
        (("http://h", "q"), {}, "begins with amqp:// or amqps://"),
        (("amqp://h", ""), {}, "name=''"),
        (("amqp://h", "q"), {"prefetch": 0}, "prefetch"),
        (("amqp://h", "q"), {"splits": 0}, "splits"),
        (("amqp://h:port", "q"), {}, "its port is no number"),
        (("amqp://a:wrong@h?heartbeat=x", "q"), {}, "'amqp://h'.*: the address cannot be read"),
    ],
)
def test_wrong_arguments_are_refused(args: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rs.io.rabbitmq(*args, Reading, **given)
