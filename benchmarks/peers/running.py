"""One run of one form in a process of its own, with a time limit, and its answers checked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import ROOT, Form, command, input_of, path_of
from benchmarks.peers.inputs import (
    LINE_BYTES,
    LINES_PER_SECOND,
    WINDOW_SECONDS,
    WORDS_PER_LINE,
    Keys,
    Lines,
)
from benchmarks.peers.programs.protocol import Task
from raystream.errors import JobError

CHECKPOINT_SECONDS = 5.0
WARM_SECONDS = 40.0
"""The first seconds of a paced run, whose latencies do not count: the first checkpoints, what is
compiled meanwhile, and spare processes that load on the same two cores, are in them."""
PACED_SECONDS = 65
TOLD_CHARACTERS = 2_000
"""So much of what a failed program said is shown."""


@dataclass(frozen=True)
class Found:
    """What a run found. units: records of W1, words of W2. latency_ms: p50, p99 and n."""

    form: Form
    units: int
    seconds: float
    latency_ms: Mapping[str, float] | None
    rate: int

    @property
    def per_second(self) -> float:
        return self.units / self.seconds


def rows_of(form: Form, records: int, rate: int) -> int:
    """How many rows a form is given, of `records` records or words, or at a rate."""
    if form.work == "latency":
        return rate * PACED_SECONDS
    rows = records if form.work == "w1" else records // WORDS_PER_LINE
    return max(1_000, int(rows * form.share))


def run(form: Form, *, records: int, data: Path, limit: float, rate: int = 0) -> Found:
    """One run. records: of W1, or words of W2. data: where the input is, or will be. limit: how
    many seconds it may take.

    Raises:
        JobError: it failed, took too long, or an answer is wrong.
    """
    rows = rows_of(form, records, rate)
    given = input_of(form, data.resolve(), rows)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        task = Task(
            work=form.work,
            form=form.form,
            path=str(path_of(form, given)),
            rows=rows,
            distinct=given.distinct if isinstance(given, Keys) else 0,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            scratch=scratch,
            rate=rate,
            warm=WARM_SECONDS,
            line_bytes=LINE_BYTES,
            words_per_line=WORDS_PER_LINE,
            lines_per_second=LINES_PER_SECOND,
            window_seconds=WINDOW_SECONDS,
        )
        arguments, more = command(form, task)
        said = _said(form, arguments, more, limit)
    if said["answers"] != (right := expected(form, given, said)):
        raise JobError(f"{form.shown}: wrong answers: {said['answers']} instead of {right}")
    units = given.words if isinstance(given, Lines) else rows
    return Found(form, units, said["seconds"], said["latency_ms"], rate)


def expected(form: Form, given: Keys | Lines, said: Mapping[str, Any]) -> dict[str, int]:
    """What the answers have to add up to: of counts that are told once for each micro-batch, those
    at the ends of batches that the program named, else the last ones."""
    if isinstance(given, Lines):
        return given.per_window()
    if form.answers == "record":
        return given.per_record()
    return given.updates(said.get("ends") or [given.rows])


def _said(
    form: Form, arguments: list[str], more: Mapping[str, str], limit: float
) -> dict[str, Any]:
    """What a program found, from the last line that it printed."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            arguments,
            cwd=ROOT,
            env={**os.environ, **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        output.seek(0)
        text = output.read()
    if code is None:
        raise JobError(f"{form.shown}: not done after {limit:g} s")
    if (said := last_json(text)) is None or code:
        raise JobError(f"{form.shown} ended with {code}:\n{text[-TOLD_CHARACTERS:]}")
    return said


def last_json(text: str) -> dict[str, Any] | None:
    """The last line that is a JSON object, of what a program and its libraries printed."""
    for line in reversed(text.splitlines()):
        if line.startswith('{"seconds"'):
            return dict(json.loads(line))
    return None


def _end(process: subprocess.Popen[Any]) -> None:
    """End a program and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
