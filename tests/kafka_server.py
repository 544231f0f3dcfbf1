"""A real Kafka for tests: one node, begun and ended by them, on this machine's loopback alone.

Its jars come by Maven, as Maven is set up, and are kept in the user's cache. Where there is no Java
or no Maven, or the jars cannot be had, tests skip and say why.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gates import LIMIT_SECONDS
from tests.processes import free_port

VERSION = "4.1.0"
JARS = Path(os.environ.get("RAYSTREAM_KAFKA_JARS", f"~/.cache/raystream/kafka-{VERSION}"))
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>raystream</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
    <version>{VERSION}</version>
  </dependency></dependencies>
</project>
"""
_HEAP = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars() -> Path:
    """The folder of Kafka's jars; they are got first if they are not there."""
    folder = JARS.expanduser()
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        pytest.skip("there is no Maven to get Kafka with: apt-get install maven")
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "pom.xml").write_text(_POM)
        made = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies",
             f"-DoutputDirectory={scratch}/jars", "-DincludeScope=runtime"],
            cwd=scratch, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            pytest.skip(f"Maven cannot get Kafka: {made.stdout[-300:]}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = folder.with_name(f"{folder.name}-{os.getpid()}")
        shutil.copytree(Path(scratch, "jars"), aside)
        if folder.is_dir():  # another test run was quicker
            shutil.rmtree(aside)
        else:
            aside.rename(folder)
    return folder


class Kafka:
    """A server with a folder of its own. It can be killed and started again."""

    def __init__(self) -> None:
        pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
        if shutil.which("java") is None:
            pytest.skip("there is no Java to run Kafka with")
        self._classes = f"{jars()}/*"
        self.folder = Path(tempfile.mkdtemp(prefix="rs-kafka-"))
        self.port, controller = free_port(), free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 200,
            "log.retention.check.interval.ms": 500,
            "controlled.shutdown.enable": "false",
        }
        self._settings = self.folder / "server.properties"
        self._settings.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self._log = (self.folder / "server.log").open("wb")
        self.process: subprocess.Popen[bytes] | None = None
        self._java(
            "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c",
            str(self._settings),
        ).wait(LIMIT_SECONDS)  # fmt: skip
        self.start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["java", *_HEAP, "-cp", self._classes, *arguments],
            cwd=self.folder, stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = self._java("kafka.Kafka", str(self._settings))
        until = time.monotonic() + LIMIT_SECONDS
        while not self._answers():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < until, f"Kafka does not start: {self.told()}"

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def told(self) -> str:
        """The end of its log."""
        return (self.folder / "server.log").read_text(errors="replace")[-2000:]

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it; unless said otherwise without any order."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(LIMIT_SECONDS)
            self.process = None

    def remove(self) -> None:
        """End it and remove its folder."""
        self.stop()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ what tests do with it

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic. config: with underscores in the place of dots."""
        from confluent_kafka.admin import NewTopic

        given = {k.replace("_", "."): v for k, v in config.items()}
        admin = self.admin()
        made = admin.create_topics([NewTopic(name, partitions, 1, config=given)])
        made[name].result(LIMIT_SECONDS)
        return name

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        given = {k.replace("_", "."): v for k, v in settings.items()}
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 1, **given})

    def produce(self, topic: str, *values: bytes | None, **options: Any) -> None:
        """Messages with these values, in order."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, **{"partition": 0, **options})
        assert producer.flush(LIMIT_SECONDS) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """All messages of a topic that are there now, by partition and offset."""
        from confluent_kafka import Consumer, TopicPartition

        client = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "reader", "isolation.level": isolation,
             "enable.auto.commit": False, "enable.partition.eof": True}
        )  # fmt: skip
        numbers = client.list_topics(topic, timeout=10).topics[topic].partitions
        client.assign([TopicPartition(topic, n, 0) for n in numbers])
        found, left = [], set(numbers)
        until = time.monotonic() + LIMIT_SECONDS
        while left:
            assert time.monotonic() < until, "the end of the topic does not come"
            message = client.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                left.discard(message.partition())
            else:
                found.append(message)
        client.close()
        return sorted(found, key=lambda m: (m.partition(), m.offset()))
