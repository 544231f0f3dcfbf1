"""The command: going on from a saved checkpoint, and what a changed flow makes of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.test_cli import command, module

__all__ = ["module"]  # a fixture


def test_a_run_in_this_process_is_resumed(module: Callable[[str], str], tmp_path: Path) -> None:
    flow = f"{module('flow = make()')}:flow"
    options = ("run", "--local", "--durable", str(tmp_path), "--checkpoint-seconds", "0.05")
    result = command(*options, "--resume", flow)
    assert result.exit_code == 0 and "nothing was saved in" in result.stdout
    result = command(*options, flow)
    assert result.exit_code == 2 and "checkpoint 3 of run 1 of words" in result.stderr, (
        result.stderr
    )
    result = command(*options, "--resume", "--instances", "count=2", flow)
    assert result.exit_code == 0 and "goes on from checkpoint 3 of run 1" in result.stdout, (
        result.stderr
    )
    assert command(*options, "--fresh", flow).exit_code == 0
    result = command("run", "--local", "--resume", flow)
    assert result.exit_code == 2 and "Say where they are: --durable" in result.stderr


def test_plan_says_what_a_changed_flow_makes_of_a_checkpoint(
    module: Callable[[str], str], tmp_path: Path
) -> None:
    name, at = module('flow, other = make(), make("tally")'), str(tmp_path / "saved")
    flow, other = f"{name}:flow", f"{name}:other"
    result = command("plan", flow, "--resume", at)
    assert result.exit_code == 2 and "no checkpoint of words is in" in result.stderr
    assert command("run", "--local", "--durable", at, flow).exit_code == 0
    result = command("plan", flow, "--resume", at)
    assert "goes on from checkpoint 3 of run 1 of words" in result.stdout
    assert "everything goes on as it was" in result.stdout
    result = command("plan", other, "--resume", at)
    assert result.exit_code == 1 and "--rename count=tally" in result.stderr
    result = command("plan", other, "--json", "--resume", at, "--rename", "count=tally")
    assert json.loads(result.stdout)["resume"]["changes"] == ["tally was called count"]
    result = command("plan", other, "--resume", at, "--drop", "count")
    assert "tally begins empty in epoch 4" in result.stdout
    assert "count: what was saved of it goes" in result.stdout
    result = command("plan", other, "--rename", "count=tally")
    assert result.exit_code == 2 and "need --resume" in result.stderr
    result = command("run", "--local", other, "--durable", at, "--rename", "count=tally")
    assert result.exit_code == 2 and "Add --resume" in result.stderr
    options = ("--durable", at, "--resume", "--rename", "count=tally")
    result = command("run", "--local", other, *options)
    assert result.exit_code == 0 and "tally was called count" in result.stdout, result.stderr
