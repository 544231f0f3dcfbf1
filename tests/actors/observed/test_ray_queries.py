"""Clients read rows of state on real Ray while instances die and move: the state of the epoch that
each answer names, and never an earlier one than they have seen."""

from __future__ import annotations

import json
import shlex
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
import ray
from typer.testing import CliRunner

import raystream as rs
from raystream.actors.control.actor_names import actor, processes_of, running
from raystream.actors.worker.seat import SeatHandle
from raystream.cli.app import app
from raystream.dataflow.queries.request import Moment
from raystream.errors import ConfigError, JobError
from raystream.testing import Collect
from tests.flows import CountWords, running_batch, split
from tests.flows import running as count_words
from tests.gates import Gate, Slow, until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

SECONDS = 5
"""Of an epoch."""
WORDS = [f"{split}{i}" for split in "ab" for i in range(7)]


def counted(word: str, epoch: int) -> int | None:
    """How often a word came up to the end of an epoch."""
    n = sum(i % 7 == int(word[1:]) for i in range(SECONDS * epoch))
    return n or None


class Client(threading.Thread):
    """Reads all the time, until it is told to stop. Notes what was wrong."""

    def __init__(self, operator: str, shared: list[tuple[int, int]]) -> None:
        super().__init__()
        self.operator, self.shared = operator, shared
        self.stop = threading.Event()
        self.answers: Counter[int] = Counter()
        self.wrong: list[Any] = []

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                with rs.query("asked", self.operator, wait=120, seen=max(self.shared)) as reader:
                    for _ in range(20):
                        before = max(self.shared)
                        reader.seen = max(reader.seen, Moment(*before))
                        self.check(reader.get_many([*WORDS, "never"]), before)
                        self.shared.append(reader.seen)
        except BaseException as error:
            self.wrong.append(repr(error))

    def check(self, found: list[Any], before: tuple[int, int]) -> None:
        for each in found:
            self.answers[each.moment.epoch] += 1
            n = None if each.row is None else each.row["n"]
            expected = counted(each.key, each.moment.epoch) if each.key in WORDS else None
            if n != expected or each.moment < before:
                self.wrong.append((each, expected, before))


def test_clients_read_the_state_of_an_epoch_and_never_go_back(tmp_path: Path) -> None:
    gate, seen = Gate(tmp_path / "gate"), list[str]()
    shared: list[tuple[int, int]] = [(0, 0)]
    clients = [Client("python", shared), Client("structured", shared)]

    def meanwhile(sample: Any) -> None:
        """Once a checkpoint is committed: read, kill, move, and end the job."""
        if seen or not sample.committed.epoch:
            return
        seen.append("begun")
        try:
            for client in clients:
                client.start()
            run, *_ = running()
            for command in ("scale asked python=3", "scale asked structured=2 --handover"):
                result = CliRunner().invoke(app, shlex.split(command))
                assert result.exit_code == 0, result.output
            kill_owner(run, "python")
            with rs.query("asked", "windows", wait=60) as windows:
                committed_rows(windows)
            for client in clients:
                client.stop.set()
                client.join(120)
            refusals()
            commands()
            seen.append("done")
        finally:
            for client in clients:
                client.stop.set()
            gate.open()

    flow = rs.Flow("asked")
    epochs = rs.by_time(seconds=SECONDS, origin=0)
    words = flow.source(Slow(400, gate), epochs=epochs, name="lines").through(split)
    words.through(count_words, name="python").to(Collect(), name="one")
    words.through(running_batch, name="structured").to(Collect(), name="two")
    words.through(CountWords(), name="windows").to(Collect(), name="three")
    flow.run(cluster="auto", on_progress=meanwhile, checkpoint_seconds=0.5, spares=2,
             instances={"python": 2})  # fmt: skip
    assert seen == ["begun", "done"]
    for client in clients:
        assert not client.wrong, client.wrong[:3]
        assert len(client.answers) > 10


def kill_owner(run: str, operator: str) -> None:
    """Kill the process of an instance of an operator."""
    for process in processes_of(run):
        handle = actor(run, process)
        if handle is None or not hasattr(handle, "place"):
            continue
        try:
            told = ray.get(SeatHandle(handle, 0).ask("progress"), timeout=30)
        except Exception:  # a spare process has no place
            continue
        if told.vertex == operator:
            ray.kill(handle)
            return
    raise AssertionError(f"nobody has {operator}")


def committed_rows(windows: Any) -> None:
    assert windows.key_names == ("word", "window_start")
    tables: list[Any] = []
    until(lambda: tables.append(windows.scan()) or tables[-1].num_rows)
    table = tables[-1]  # at some checkpoints no window is open
    rows = table.to_pylist()
    assert table.column_names[:2] == ["word", "window_start"]
    some = windows.scan(where=pc.field("word") == rows[0]["word"])
    assert {r["word"] for r in some.to_pylist()} <= {rows[0]["word"]}


def refusals() -> None:
    with pytest.raises(ConfigError, match="no operator 'nothing' that keeps rows"):
        rs.query("asked", "nothing")
    with rs.query("asked", "python", wait=30) as reader:
        with pytest.raises(ConfigError, match="7 is no key of python"):
            reader.get(7)
        one = reader.get("a1", committed=True)
        assert one.row == {"n": counted("a1", one.moment.epoch)}
        table = reader.scan()
        expected = {w: counted(w, reader.seen.epoch) for w in WORDS}
        found = dict(zip(*(table.column(c).to_pylist() for c in ("word", "n")), strict=True))
        assert {w: found[w] for w in WORDS} == expected
    far = (reader.seen.run, 10**9)
    behind = pytest.raises(JobError, match="has not come to epoch 1000000000")
    with rs.query("asked", "python", wait=0.2, seen=far) as ahead, behind:
        ahead.get("a1")
    with pytest.raises(JobError, match="may be older"):
        rs.query("asked", "python", seen=(10**12, 1))


def commands() -> None:
    """The same by the command."""

    def said(line: str) -> list[Any]:
        result = CliRunner().invoke(app, shlex.split(line))
        assert result.exit_code == 0, result.output
        return [json.loads(text) for text in result.stdout.splitlines()]

    one, never = said("state asked structured --key a1 --key never --json --wait 30")
    assert one["row"] == {"n": counted("a1", one["epoch"])} and never["row"] is None
    (one,) = said("state asked structured --key a2 --json --committed")
    assert one["row"] == {"n": counted("a2", one["epoch"])}
    rows = said("state asked structured --where 'n > 3' --where 'word = a3' --json")
    assert [row["word"] for row in rows] == ["a3"]
    result = CliRunner().invoke(app, shlex.split("state asked structured --limit 2"))
    assert "the first 2 are shown" in result.output
    result = CliRunner().invoke(app, shlex.split("state asked windows --key '[\"a1\", 30]'"))
    assert result.exit_code == 0 and "epoch" in result.output
