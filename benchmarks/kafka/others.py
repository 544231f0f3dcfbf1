"""Other systems that do the work of `python -m benchmarks kafka`, each in a process of its own.

Java's come by Maven, Python's by pip, as these are set up; they are kept in the user's cache. What
cannot be had is skipped, with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka.server import Unavailable, jars_of

PROGRAMS = Path(__file__).parent / "peers"
PLACE = Path("~/.cache/raystream").expanduser()
OPENED = ("--add-opens=java.base/java.util=ALL-UNNAMED",
          "--add-opens=java.base/java.lang=ALL-UNNAMED")  # fmt: skip
"""Flink copies what it sends between operators by reflection."""


@dataclass(frozen=True)
class Other:
    """A system.

    Attributes:
        name: of its program. packages: of Maven (with colons), or of pip.
        shown: in tables. ms: between two commits.
        exact: whether it promises exactly once.
    """

    name: str
    packages: tuple[str, ...]
    shown: str
    ms: int
    exact: bool = True

    @property
    def folder(self) -> Path:
        version = self.packages[0].replace("==", ":").rpartition(":")[2]
        return PLACE / f"kafka-{self.name}-{version}"

    def command(self) -> list[str]:
        """What begins it, without arguments; it is installed first if it is not there.

        Raises:
            Unavailable: it cannot be had here.
        """
        if ":" not in self.packages[0]:
            return [str(self._environment()), str(PROGRAMS / f"on_{self.name}.py")]
        if shutil.which("javac") is None:
            raise Unavailable("there is no javac: install a JDK 17 or newer")
        jars = jars_of(self.folder, self.packages)
        classes = self.folder / "classes"
        program = self.name.capitalize()
        source = PROGRAMS / "java" / f"{program}.java"
        _run("javac", "-d", str(classes), "-cp", f"{jars}/*", str(source))
        return ["java", "-Xmx1g", *OPENED, "-cp", f"{classes}:{jars}/*", program]

    def _environment(self) -> Path:
        python = self.folder / "bin" / "python"
        if not (self.folder / "ready").exists():
            _run(sys.executable, "-m", "venv", "--clear", str(self.folder))
            _run(str(python), "-m", "pip", "install", "-q", "--prefer-binary", *self.packages)
            (self.folder / "ready").touch()
        return python


def _run(*command: str) -> None:
    made = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if made.returncode:
        raise Unavailable(f"{command[0]} failed: {made.stderr[-300:]}")


class Running:
    """A system at work. Its folder is removed at the end.

    Args:
        command: of `Other.command`. more: arguments of its own.
    """

    def __init__(self, command: Sequence[str], servers: str, ms: int, *more: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rs-kafka-peer-"))
        state = self.folder / "state"
        state.mkdir()
        self._log = (self.folder / "log").open("wb")
        self._process = subprocess.Popen(
            [*command, servers, str(ms), str(state), *more],
            stdout=self._log, stderr=subprocess.STDOUT, cwd=self.folder,
        )  # fmt: skip

    def refuse_ended(self) -> None:
        """Raises `Unavailable` if it has ended by itself."""
        if self._process.poll() is not None:
            told = (self.folder / "log").read_text(errors="replace")[-500:]
            raise Unavailable(f"it ended: {told}")

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(30)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


_FLINK = (
    "org.apache.flink:flink-clients:2.3.0",
    "org.apache.flink:flink-streaming-java:2.3.0",
    "org.apache.flink:flink-connector-base:2.3.0",
    "org.apache.flink:flink-runtime:2.3.0",
    "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
)
FLINK = Other("flink", _FLINK, "Flink 2.3, checkpoints each 5 s", 5000)
OTHERS = (
    FLINK,
    Other("flink", _FLINK, "Flink 2.3, checkpoints each 100 ms", 100),
    Other(
        "streams", ("org.apache.kafka:kafka-streams:4.1.0",),
        "Kafka Streams 4.1, exactly_once_v2, 100 ms", 100,
    ),
    Other("quix", ("quixstreams==3.28.1",), "Quix Streams, exactly-once, 100 ms", 100),
    Other(
        "bytewax", ("bytewax[kafka]==0.21.1",),
        "Bytewax 0.21, at least once", 100, exact=False,
    ),
)  # fmt: skip
