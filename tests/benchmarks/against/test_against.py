"""This tree against an older commit: figures, ratios, and a checkout that leaves nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.against import command, works
from benchmarks.against.command import in_turn, worktree
from benchmarks.against.ratios import Compared, ratio, table
from benchmarks.against.works import WORKS, Sizes, measured
from raystream.errors import JobError

positive = st.floats(0.1, 1e6)


@given(st.lists(positive, min_size=1, max_size=20), st.floats(0.5, 2.0))
def test_what_is_always_so_many_times_as_much_has_that_ratio(
    old: list[float], times: float
) -> None:
    found = ratio([times * o for o in old], old)
    assert found == pytest.approx((times, times, times))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        logs = rng.normal(np.log(0.9), 0.1, 20)
        found = ratio(np.exp(logs).tolist(), [1.0] * 20)
        held += found.least <= 0.9 <= found.most
    assert 176 <= held <= 199  # of 200; a bootstrap of 20 covers a little less than 95 %


def test_the_table_is_markdown() -> None:
    some = Compared(WORKS["w1-batch"], [11e6, 9e6], [10e6, 10e6], [10e6, 10e6])
    other = Compared(WORKS["recovery"], [0.5], [1.0])
    head, rule, first, second = table([some, other], "abc1234").splitlines()
    assert head.startswith("| work | unit | abc1234, median | now, median |")
    assert set(rule) == set("|- :")
    assert "| 10,000,000 | 10,000,000 |" in first and "1.000 (1.000 to 1.000)" in first
    assert second.endswith("| 1 | 0.5 | 0.500 (0.500 to 0.500) | less |  | 1 |")


def test_every_pair_has_all_trees_in_changing_order() -> None:
    orders = {tuple(in_turn(["now", "then"], i)) for i in range(10)}
    assert orders == {("now", "then"), ("then", "now")}


def test_figures_are_read_from_what_commands_say() -> None:
    said = {
        "w1-compiled": {"records_per_second": 7},
        "w1-batch": {"records_per_second": 7},
        "linear-road": {"records_per_second": 7},
        "w2": {"units": 14, "seconds": 2},
        "latency-10k": {"latency_ms": {"p50": 1, "p99": 7}},
        "latency-100k": {"latency_ms": {"p50": 1, "p99": 7}},
        "recovery": {"recovered_ms": [7, 1, 9]},
    }
    assert {name: work.figure(said[name]) for name, work in WORKS.items()} == dict.fromkeys(
        WORKS, 7
    )


@pytest.fixture
def sizes(tmp_path: Path) -> Sizes:
    return Sizes(data=tmp_path, records=20_000, traffic_seconds=60)


def program(tree: Path, text: str) -> None:
    """A tree whose `python -m benchmarks` does what a text says."""
    package = tree / "benchmarks"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(text)


def test_a_command_that_fails_is_told(sizes: Sizes, tmp_path: Path) -> None:
    program(tmp_path, "import sys; print('{}'); sys.exit('no such thing')")
    with pytest.raises(JobError, match=r"(?s)ended with 1 in .*no such thing"):
        measured(WORKS["w2"], tmp_path, sizes, 60)
    program(tmp_path, "import time; time.sleep(600)")
    with pytest.raises(JobError, match=r"not done after 0\.1 s"):
        measured(WORKS["w2"], tmp_path, sizes, 0.1)


def test_a_command_is_asked_for_sizes(sizes: Sizes, tmp_path: Path) -> None:
    program(
        tmp_path, "import json, sys; print('words'); print(json.dumps({'given': sys.argv[1:]}))"
    )
    given = measured(WORKS["linear-road"], tmp_path, sizes, 60)["given"]
    assert given[:3] == ["lrb", "--data", f"{tmp_path}/traffic-60"]
    assert "20000" in measured(WORKS["w2"], tmp_path, sizes, 60)["given"]


def repository(folder: Path) -> None:
    line = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*line, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_checkout_is_gone_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    with worktree("HEAD") as (tree, commit):
        assert (tree / ".git").exists() and commit in command.git("log", "--oneline")
    assert not tree.exists() and len(command.git("worktree", "list").splitlines()) == 1
    with pytest.raises(JobError, match="nothing"), worktree("nothing"):
        pass


def test_both_trees_run_in_turns_and_first_runs_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    ran: list[bool] = []

    def run(work: works.Work, tree: Path, sizes: Sizes, limit: float) -> dict[str, Any]:
        ran.append(tree == tmp_path)
        return {"records_per_second": 1e9 if len(ran) <= 3 else 2000 if tree == tmp_path else 1000}

    monkeypatch.setattr(command, "measured", run)
    line = "against HEAD --works w1-batch --pairs 2 --itself --json"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert len(ran) == 9 and sum(ran) == 3
    said = [json.loads(text) for text in result.stdout.splitlines() if text.startswith("{")]
    assert [s["counts"] for s in said] == [False] * 3 + [True] * 6
    assert result.stdout.splitlines()[-1].count("2.000 (2.000 to 2.000) | more | 1.000") == 1


def test_what_is_unknown_is_refused() -> None:
    result = CliRunner().invoke(app, ["against", "HEAD", "--works", "w3"])
    assert result.exit_code == 2 and "w3" in result.output
