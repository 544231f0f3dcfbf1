"""A local Spark for the length of a `with` block: quiet, bounded, and gone afterwards.

Spark leaves its Java process, its folders and its chatter to the end of the Python process. Here
they end with the block, so that a command that goes on to other work (Ray, for one) has the whole
machine for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from raystream.errors import ConfigError
from spark_ingest.spark.java import java_home

MEMORY = "1g"
"""Heap of Spark's process, which holds driver and executors; rows stay out of it (`shuffle`)."""

_END_SECONDS_MAX = 20
_LOG_CHARS_MAX = 2_000

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


@contextmanager
def spark_session(
    name: str, *, cores: int | None = None, options: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark on this machine alone, with all cores unless `cores` says how many.

    `options` are Spark settings that go before those made here. When the block ends, however it
    ends, so do Spark's processes and its temporary files.

    Raises `ConfigError` if there is no Java, if a Spark already runs in this process, or if Spark
    does not start.
    """
    if SparkContext._active_spark_context is not None:
        raise ConfigError("A Spark session already runs in this process: pass it on instead.")
    java = java_home()
    with tempfile.TemporaryDirectory(prefix="spark-ingest-") as scratch:
        settings = {**_settings(Path(scratch), cores), **(options or {})}
        log = Path(scratch) / "spark.log"
        try:
            with _interrupts_later() as interrupted:
                session = _start(name, settings, java, log)
        except (PySparkException, OSError) as error:
            _end_java()
            raise ConfigError(f"Spark did not start: {error}\n{_tail(log)}") from error
        try:
            if interrupted:
                raise KeyboardInterrupt
            yield session
        finally:
            session.stop()
            _end_java()


def _settings(scratch: Path, cores: int | None) -> dict[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    java_options = (
        # In quotes: Spark parts these options at spaces, and TMPDIR may have some.
        f'-Dlog4j2.configurationFile={log4j.as_uri()} "-Djava.io.tmpdir={scratch}"'
        # Jobs last seconds: the quick compiler alone starts sooner and leaves cores to Python.
        " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
    )
    return {
        "spark.master": f"local[{cores or '*'}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.executorEnv.PYTHONPATH": _module_path(),
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _module_path() -> str:
    """Where Spark's Python workers find what this process can import."""
    return os.pathsep.join(dict.fromkeys(str(Path(entry).resolve()) for entry in sys.path))


def _start(name: str, settings: Mapping[str, str], java: Path, log: Path) -> SparkSession:
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    environment = {
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with _environment(environment), _stderr_to(log):
        return builder.getOrCreate()


@contextmanager
def _interrupts_later() -> Iterator[list[int]]:
    """Ctrl-C in the block is put off, and noted: until it has started nobody can end Spark's Java,
    which does not end by itself either."""
    came: list[int] = []
    handled = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is signal.default_int_handler
    ]
    if threading.current_thread() is not threading.main_thread():
        handled = []  # only the main thread is interrupted, and may say what is done then
    for number in handled:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for number in handled:
            signal.signal(number, signal.default_int_handler)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Processes started in the block write their errors to `log`.

    The virtual machine warns before it reads any logging configuration; this is what silences it.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _end_java() -> None:
    """End Spark's Java process, which otherwise lives as long as this Python does."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()  # Java ends when nobody can write to it any more
    try:
        process.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    """The end of what Spark wrote before it gave up."""
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARS_MAX:].strip()
    except OSError:
        return ""
