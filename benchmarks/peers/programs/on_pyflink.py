"""PyFlink: the same source and sink as Flink's own program, in Java; the work is in Python.

Form `process` runs the functions in a Python process, in bundles; `thread` inside the JVM. Time
runs from when the functions are opened: Python comes up long after the source.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors import Sink, Source
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway

from benchmarks.peers.programs.protocol import Task, asked

COUNTED = Types.TUPLE([Types.INT(), Types.INT()])
LATE = Types.TUPLE([Types.INT(), Types.INT(), Types.LONG()])
WORD = Types.TUPLE([Types.STRING(), Types.LONG()])
WORDS = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


OPENED = "opened"


def opened(scratch: str) -> None:
    """Note when the functions were opened, in whatever process."""
    Path(scratch, OPENED).write_text(str(time.time()))


class Count(KeyedProcessFunction):
    def __init__(self, scratch: str) -> None:
        self.scratch = scratch

    def open(self, context: RuntimeContext) -> None:
        opened(self.scratch)
        self.n = context.get_state(ValueStateDescriptor("n", Types.INT()))

    def process_element(self, key: Any, context: Any) -> Iterator[tuple[int, ...]]:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield key, n


class PacedCount(Count):
    def process_element(self, record: Any, context: Any) -> Iterator[tuple[int, ...]]:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield record[0], n, record[1]


class Split(FlatMapFunction):
    def __init__(self, scratch: str) -> None:
        self.scratch = scratch

    def open(self, context: RuntimeContext) -> None:
        opened(self.scratch)

    def flat_map(self, line: Any) -> Iterator[tuple[str, int]]:
        return ((word, 1) for word in line[1].split())


class WithStart(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[tuple[str, int, int]]:
        for word, n in elements:
            yield word, context.window().start, n


def w1(env: StreamExecutionEnvironment, java: Any, task: Task) -> None:
    source = Source(java.Input.keys(task.path, task.rows, 1))
    keys = env.from_source(source, WatermarkStrategy.no_watermarks(), "keys")
    counts = keys.key_by(lambda key: key, Types.INT()).process(Count(task.scratch), COUNTED)
    counts.sink_to(Sink(java.Totals.OfCounts()))


def latency(env: StreamExecutionEnvironment, java: Any, task: Task) -> None:
    source = Source(java.Input.paced(task.path, task.rows, task.rate))
    keys = env.from_source(source, WatermarkStrategy.no_watermarks(), "keys")
    counts = keys.key_by(lambda r: r[0], Types.INT()).process(PacedCount(task.scratch), LATE)
    counts.sink_to(Sink(java.Totals.OfLate(task.warm)))


def w2(env: StreamExecutionEnvironment, java: Any, task: Task) -> None:
    lines = java.Input.lines(
        env._j_stream_execution_environment,
        task.path,
        task.rows,
        1,
        task.line_bytes,
        task.lines_per_second,
    )
    words = DataStream(lines).flat_map(Split(task.scratch), WORD)
    size = Time.seconds(task.window_seconds)
    counts = (
        words.key_by(lambda word: word[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(size))
        .reduce(lambda a, b: (a[0], a[1] + b[1]), WithStart(), WORDS)
    )
    counts.sink_to(Sink(java.Totals.OfWords()))


def main() -> None:
    task = asked()
    settings = Configuration()
    for setting in os.environ["FLINK_SETTINGS"].split():
        settings.set_string(*setting.split("=", 1))
    settings.set_string("python.execution-mode", task.form)
    for user in ("python.executable", "python.client.executable"):
        settings.set_string(user, sys.executable)
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(1)
    java = get_gateway().jvm.peers
    {"w1": w1, "w2": w2, "latency": latency}[task.work](env, java, task)
    env.execute()
    print(java.Totals.jsonFrom(float(Path(task.scratch, OPENED).read_text())))


if __name__ == "__main__":
    main()
