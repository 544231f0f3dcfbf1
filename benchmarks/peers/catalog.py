"""Who is compared: the systems, their versions, the forms of the work in each; how to run one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from benchmarks.peers.inputs import Keys, Lines
from benchmarks.peers.programs.protocol import Task

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = ROOT / ".peers"
JAVA = Path(__file__).parent / "programs" / "java"
OURS = "raystream"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
HEAP = "-Xmx4g"


@dataclass(frozen=True)
class System:
    """A system with an environment of its own. packages: the first is the system. sources: of Java,
    compiled against it."""

    name: str
    packages: tuple[str, ...]
    sources: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        """Where its packages are."""
        return self.folder / "lib" / PYTHON / "site-packages"

    @property
    def ready(self) -> Path:
        """Holds what was installed, when all was; it may be of another version."""
        return self.folder / "installed.json"

    @property
    def wanted(self) -> list[str]:
        """What `ready` holds when these versions are there, for the Python that runs this, and
        these sources compiled."""
        return [PYTHON, *self.packages, *(f"{crc32(p.read_bytes()):x}" for p in self.sources)]

    @property
    def installed(self) -> bool:
        """Whether these versions are there."""
        return self.ready.exists() and json.loads(self.ready.read_text()) == self.wanted

    @property
    def classes(self) -> Path:
        """Compiled Java."""
        return self.folder / "classes"

    @property
    def jars(self) -> str:
        """The class path for Java."""
        return f"{self.classes}{os.pathsep}{self.site / 'pyflink' / 'lib'}/*"


SYSTEMS = {
    s.name: s
    for s in (
        System("flink", ("apache-flink==2.3.0",), tuple(sorted(JAVA.rglob("*.java")))),
        System("bytewax", ("bytewax==0.21.1", "numpy==2.1.3")),
        System("pathway", ("pathway==0.33.0",)),
        System("spark", ("pyspark==4.3.0",)),
    )
}


class Form(NamedTuple):
    """A way in which a system does a work.

    answers: `record`, one for each; `batch`, one for each key and micro-batch; `window`.
    share: of the records that this one is given; it is so slow that all would take too long.
    reads: `file`, `parts` or `csv`.
    """

    system: str
    work: str
    form: str
    shown: str
    answers: str
    share: float = 1.0
    reads: str = "file"
    program: str = ""

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"{self.program or self.system}:{self.form}"


FORMS = (
    Form(OURS, "w1", "compiled", "raystream, compiled", "record"),
    Form(OURS, "w1", "batch", "raystream, batch", "record"),
    Form(OURS, "w1", "interpreted", "raystream, interpreted", "record"),
    Form("flink", "w1", "java", "Flink, JVM", "record"),
    Form("flink", "w1", "process", "PyFlink, process mode", "record", 0.005, program="pyflink"),
    Form("flink", "w1", "thread", "PyFlink, thread mode", "record", 0.05, program="pyflink"),
    Form("bytewax", "w1", "plain", "Bytewax", "record", 0.2),
    Form("bytewax", "w1", "vectors", "Bytewax, vectorised by hand", "record"),
    Form("pathway", "w1", "plain", "Pathway", "batch", reads="csv"),
    Form("spark", "w1", "plain", "Spark Structured Streaming", "batch", reads="parts"),
    Form(OURS, "w2", "batch", "raystream, batch, combined", "window"),
    Form(OURS, "w2", "interpreted", "raystream, interpreted", "window", 0.2),
    Form("flink", "w2", "java", "Flink, JVM", "window"),
    Form("flink", "w2", "combined", "Flink, JVM, combined by hand", "window"),
    Form("flink", "w2", "process", "PyFlink, process mode", "window", 0.005, program="pyflink"),
    Form("flink", "w2", "thread", "PyFlink, thread mode", "window", 0.02, program="pyflink"),
    Form("bytewax", "w2", "plain", "Bytewax", "window", 0.05),
    Form("pathway", "w2", "plain", "Pathway", "batch", 0.2, "csv"),
    Form("spark", "w2", "plain", "Spark Structured Streaming", "window", reads="parts"),
    Form(OURS, "latency", "compiled", "raystream, compiled", "record"),
    Form(OURS, "latency", "together", "raystream, one thread", "record"),
    Form(OURS, "latency", "arrival", "raystream, cut by arrival", "record"),
    Form("flink", "latency", "java", "Flink, JVM, buffers for 1 ms", "record"),
    Form("flink", "latency", "flush", "Flink, JVM, no buffers", "record"),
    Form("flink", "latency", "shipped", "Flink, JVM, as shipped", "record"),
    Form("flink", "latency", "thread", "PyFlink, thread mode", "record", program="pyflink"),
    Form("bytewax", "latency", "plain", "Bytewax", "record"),
    Form("pathway", "latency", "plain", "Pathway", "batch"),
)


def input_of(form: Form, data: Path, rows: int) -> Keys | Lines:
    """The input of a form, made."""
    made = Lines(data, rows) if form.work == "w2" else Keys(data, rows)
    made.make()
    return made


def path_of(form: Form, given: Keys | Lines) -> Path:
    """Where a form reads it, made."""
    return {"file": lambda: given.path, "parts": given.parts, "csv": given.csv}[form.reads]()


def command(form: Form, task: Task) -> tuple[list[str], Mapping[str, str]]:
    """What runs a task, and what its environment has besides ours."""
    if form.system == OURS:
        program = "benchmarks.peers.programs.on_raystream"
        return [sys.executable, "-m", program, json.dumps(task._asdict())], {}
    system = SYSTEMS[form.system]
    if form.system == "flink" and not form.program:
        return _java(form, system, task), {}
    program = f"benchmarks.peers.programs.on_{form.program or form.system}"
    settings = " ".join(f"{k}={v}" for k, v in flink_settings(form, task).items())
    more = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{system.site}",  # also for Python inside a JVM
        "PATH": f"{system.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "FLINK_SETTINGS": settings,
        "FLINK_LOG_DIR": task.scratch,
        "HADOOP_CLASSPATH": str(system.classes),  # how PyFlink takes classes of others
        "JVM_ARGS": HEAP,
    }
    return [str(system.python), "-m", program, json.dumps(task._asdict())], more


def flink_settings(form: Form, task: Task) -> dict[str, str]:
    """Flink's settings: its state is small, so it is kept in the heap; records are handed on
    without copies. Two instances of each operator on two cores were slower than one."""
    settings = {
        "execution.checkpointing.interval": f"{task.checkpoint_seconds:g}s",
        "execution.checkpointing.dir": Path(task.scratch, "checkpoints").as_uri(),
        "state.backend.type": "hashmap",
        "pipeline.object-reuse": "true",
        "restart-strategy.type": "none",
    }
    if form.work == "latency" and form.form != "shipped":
        settings["execution.buffer-timeout.interval"] = "0ms" if form.form == "flush" else "1ms"
        settings["python.fn-execution.bundle.time"] = "1"
    else:
        settings["python.fn-execution.bundle.size"] = "10000"
    return settings


def _java(form: Form, system: System, task: Task) -> list[str]:
    given = {
        **{k: str(v) for k, v in task._asdict().items()},
        **flink_settings(form, task),
        "instances": "1",
        "combine": "yes" if form.form == "combined" else "no",
    }
    opens = java_options(system.site / "pyflink" / "conf" / "config.yaml")
    arguments = [f"{name}={value}" for name, value in given.items()]
    return ["java", HEAP, *opens, "-cp", system.jars, "peers.Main", *arguments]


def java_options(config: Path) -> list[str]:
    """The options of Java that Flink's own configuration names (`env.java.opts.all`)."""
    lines = [line.strip() for line in config.read_text().splitlines()]
    return next(line for line in lines if line.startswith("all: --")).split()[1:]
