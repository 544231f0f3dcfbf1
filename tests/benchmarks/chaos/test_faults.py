"""Who is struck, by which signal, and that nobody else is."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chaos.faults import AWAY_SECONDS, FAMILIES, Monkey, choose, kinds_of, possible
from raystream.controller.reporting.report import Committed
from tests.gates import LIMIT_SECONDS, until

CHAINS = (("lines", "count", "counts"), ("lines", "other", "counts"))
HEAD = 0
EDGES = {("lines", "count"), ("count", "counts"), ("lines", "other"), ("other", "counts")}

names = st.builds(
    lambda vertex, index, number: f"{vertex}/{index}" + (f".{number}" if number else ""),
    st.sampled_from(["lines", "count", "other", "counts", "keeper"]),
    st.integers(0, 2),
    st.integers(0, 2),
) | st.just("controller")
scenes = st.dictionaries(names, st.integers(HEAD, 2))


def vertex_of(name: str) -> str:
    return name.partition("/")[0]


@given(scenes, st.sampled_from(kinds_of(FAMILIES, CHAINS)), st.integers(0, 99))
def test_victims_are_whom_the_kind_says(there: dict[str, int], kind: str, seed: int) -> None:
    victims = choose(kind, there, HEAD, CHAINS, random.Random(seed))
    assert set(victims) <= {*there, *(["head"] if kind.startswith("head") else [])}
    vertices = [vertex_of(v) for v in victims]
    if not victims:
        return
    if kind in ("pair", "triple"):
        assert len(victims) == {"pair": 2, "triple": 3}[kind]
        assert all(edge in EDGES for edge in pairwise(vertices))
    elif kind == "backed":
        assert vertices[0] in ("count", "other", "counts") and vertices[1] == "keeper"
        assert there[victims[0]] != there[victims[1]]
    elif kind == "node":
        (node,) = {there[v] for v in victims}
        assert node != HEAD and set(victims) == {n for n in there if there[n] == node}
        assert len([v for v in vertices if v not in ("keeper", "controller")]) >= 2
    elif kind.startswith("cut"):
        (node,) = {there[v] for v in victims}
        assert node != HEAD and set(victims) == {n for n in there if there[n] == node}
    elif kind.startswith("head"):
        lost = {n for n in there if there[n] == HEAD} if kind == "head node" else set()
        assert set(victims) == {"head", *lost}
    else:
        assert vertices == [kind.split()[-1]]


@given(scenes, st.integers(0, 99))
def test_a_process_is_found_whenever_there_is_one(there: dict[str, int], seed: int) -> None:
    for kind in kinds_of(["kill", "stop", "controller", "keeper"], CHAINS):
        found = choose(kind, there, HEAD, CHAINS, random.Random(seed))
        assert bool(found) == any(vertex_of(n) == kind.split()[-1] for n in there)


def test_what_a_cluster_allows() -> None:
    assert set(FAMILIES) - set(possible(1, 1)) == {"backed", "node", "head", "cut"}
    assert set(FAMILIES) - set(possible(2, 2)) == {"backed", "head", "cut"}
    assert set(FAMILIES) - set(possible(2, 3)) == {"cut"}
    assert possible(2, 4) == FAMILIES


# ---------------------------------------------------------------------------- signals


def is_called(process: subprocess.Popen[bytes], title: str) -> None:
    """Wait until a process has its title. On a busy machine that comes after `Popen` has returned:
    the pipe that it waits for is closed before the kernel sets the arguments of the program."""
    until(lambda: psutil.Process(process.pid).cmdline()[:1] == [title])


@pytest.fixture
def sleepers() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes that call themselves as those of a job do, and one that does not."""
    titles = {
        "count/0": "ray::InstanceActor",
        "keeper/0": "ray::job:keeper-1:Keeper.get",
        "other/0": "sleep",
    }
    started = {
        name: subprocess.Popen([title, "600"], executable="/bin/sleep")
        for name, title in titles.items()
    }
    for name, process in started.items():
        is_called(process, titles[name])
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def becomes(process: subprocess.Popen[bytes], *, stopped: bool) -> None:
    """Wait until it is stopped, or not; a signal takes a moment."""
    until(lambda: (psutil.Process(process.pid).status() == psutil.STATUS_STOPPED) == stopped)


def monkey_of(*kinds: str, copies: int = 2) -> Monkey:
    nodes: Any = SimpleNamespace(
        head=HEAD, home=None, head_is_away=False, is_cut=False, replace_cut=lambda: None
    )
    said: list[str] = []
    return Monkey(random.Random(1), nodes, CHAINS, 0.0, copies, deque(kinds), say=said.append)


def sample_of(
    sleepers: dict[str, subprocess.Popen[bytes]],
    committed: int = 1,
    under_replicated: int = 0,
    **others: int,
) -> Any:
    processes = {n: p.pid for n, p in sleepers.items()} | others
    return SimpleNamespace(
        t=10.0,
        processes=processes,
        committed=Committed(epoch=committed, age=0.0, under_replicated=under_replicated),
    )


def test_only_processes_of_jobs_are_killed(sleepers: dict[str, subprocess.Popen[bytes]]) -> None:
    monkey = monkey_of("kill other", "kill count")
    monkey(sample_of(sleepers))
    monkey(sample_of(sleepers))
    assert [(s.kind, s.victims) for s in monkey.strikes] == [("kill count", ("count/0",))]
    assert list(monkey.due) == ["kill other"]
    assert sleepers["count/0"].wait() == -9
    assert sleepers["other/0"].poll() is None and sleepers["keeper/0"].poll() is None


def test_a_kind_that_is_not_possible_holds_up_no_other(
    sleepers: dict[str, subprocess.Popen[bytes]],
) -> None:
    monkey = monkey_of("node", "kill count")
    monkey.refill = ("node", "stop keeper")
    for _ in range(3):
        monkey(sample_of(sleepers))
        monkey._next = 0.0
    monkey.close()
    assert [s.kind for s in monkey.strikes] == ["kill count", "stop keeper"]  # who is then asleep
    assert list(monkey.due) == ["node"]


def test_while_the_head_is_away_no_node_is_killed_and_no_head(
    sleepers: dict[str, subprocess.Popen[bytes]],
) -> None:
    struck: list[tuple[float, bool]] = []
    monkey = monkey_of("head server", "head node", "kill count")
    nodes: Any = monkey.nodes

    def strike(seconds: float, *, whole: bool) -> None:
        struck.append((seconds, whole))
        nodes.head_is_away = True

    nodes.strike_head = strike
    for _ in range(3):
        monkey(sample_of(sleepers))
        monkey._next = 0.0
    assert [s.kind for s in monkey.strikes] == ["head server", "kill count"]
    assert struck == [(AWAY_SECONDS, False)] and list(monkey.due) == ["head node"]
    nodes.head_is_away = False
    monkey(sample_of(sleepers))
    assert struck[1:] == [(AWAY_SECONDS, True)]


def test_who_is_stopped_sleeps_and_is_woken(sleepers: dict[str, subprocess.Popen[bytes]]) -> None:
    monkey = monkey_of("stop count", "kill count")
    monkey(sample_of(sleepers))
    becomes(sleepers["count/0"], stopped=True)
    monkey(sample_of(sleepers))
    assert [s.kind for s in monkey.strikes] == ["stop count"]  # who sleeps is left alone
    monkey.close()
    becomes(sleepers["count/0"], stopped=False)


@pytest.mark.parametrize("copies", [1, 2])
def test_the_only_copy_is_not_taken_from_who_needs_it(
    copies: int, sleepers: dict[str, subprocess.Popen[bytes]]
) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    monkey = monkey_of("keeper", copies=copies)
    monkey(sample_of({"keeper/0": sleepers["keeper/0"]}, **{"count/0": gone.pid}))
    assert len(monkey.strikes) == copies - 1


@pytest.mark.parametrize("copies", [1, 2])
def test_nobody_falls_with_the_last_copy(
    copies: int, sleepers: dict[str, subprocess.Popen[bytes]]
) -> None:
    """All copies have to be there, and newer ones than when a keeper was struck last."""
    sleepers = {name: sleepers[name] for name in ("count/0", "keeper/0")}
    monkey = monkey_of("keeper", copies=copies)
    monkey(sample_of(sleepers, committed=0))
    monkey(sample_of(sleepers, committed=3, under_replicated=1))
    assert not monkey.strikes
    monkey(sample_of(sleepers, committed=3))
    monkey._next = 0.0
    monkey.due.append("kill count")
    monkey(sample_of(sleepers, committed=3))
    assert [s.kind for s in monkey.strikes] == ["keeper", "kill count"][:copies]


def test_where_psutil_is_missing_it_is_said_what_to_install() -> None:
    program = "import sys; sys.modules['psutil'] = None; import benchmarks.chaos.soak"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "this needs psutil, which is not installed: pip install 'raystream[bench]'\n"
    )
