"""A real Kafka on this machine: one node, begun and ended by whoever needs it, on loopback alone.

Its jars come by Maven, as Maven is set up, and are kept in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

VERSION = "4.1.0"
JARS = Path(f"~/.cache/raystream/kafka-{VERSION}")
LIMIT_SECONDS = 120.0
"""How long it may take to start."""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>raystream</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_HEAP = ("-Xms128m", "-Xmx384m", "-XX:+UseSerialGC")


class Unavailable(Exception):
    """There can be no Kafka here."""


def jars() -> Path:
    """The folder of Kafka's jars; they are got first if they are not there.

    Raises:
        Unavailable: they cannot be had.
    """
    return jars_of(JARS.expanduser(), (f"org.apache.kafka:kafka_2.13:{VERSION}",))


def jars_of(folder: Path, artifacts: Sequence[str]) -> Path:
    """A folder with the jars of artifacts (`group:name:version`) and all that they need; they are
    got first if it is not there.

    Raises:
        Unavailable: they cannot be had.
    """
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        raise Unavailable("there is no Maven to get it with: apt-get install maven")
    wanted = "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "pom.xml").write_text(_POM.format(wanted))
        made = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies",
             f"-DoutputDirectory={scratch}/jars", "-DincludeScope=runtime"],
            cwd=scratch, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            raise Unavailable(f"Maven cannot get {artifacts[0]}: {made.stdout[-300:]}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = folder.with_name(f"{folder.name}-{os.getpid()}")
        shutil.copytree(Path(scratch, "jars"), aside)
        if folder.is_dir():  # another process was quicker
            shutil.rmtree(aside)
        else:
            aside.rename(folder)
    return folder


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


class KafkaServer:
    """A server with a folder of its own. It can be killed and started again.

    Args:
        brief: it lives for seconds: its code is compiled once, quickly, and not a second time for
            speed.

    Raises:
        Unavailable: there is no Java, no confluent-kafka, or no Kafka to be had.
    """

    def __init__(self, *, brief: bool = True) -> None:
        self._options = (*_HEAP, "-XX:TieredStopAtLevel=1") if brief else _HEAP
        if find_spec("confluent_kafka") is None:
            raise Unavailable("confluent-kafka is not installed")
        if shutil.which("java") is None:
            raise Unavailable("there is no Java to run Kafka with")
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
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
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
            ["java", *self._options, "-cp", self._classes, *arguments],
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
        from confluent_kafka.admin import AdminClient

        try:
            client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            return bool(client.list_topics(timeout=1).brokers)
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

    def cpu_seconds(self) -> float:
        """How much of a processor it has taken since it was started."""
        if self.process is None:
            return 0.0
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def remove(self) -> None:
        """End it and remove its folder."""
        self.stop()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
