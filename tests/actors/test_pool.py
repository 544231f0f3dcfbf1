"""The pool on a real autoscaler, whose machines are processes here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raystream.controller.pool import OPERATOR_NODE
from tests.actors.heads import Head, autoscaled_head, end, environment
from tests.actors.metadata import fake_metadata

ROOT = Path(__file__).resolve().parents[2]
AT = 4102444800.0
NOTICE = '{"action": "terminate", "time": "2100-01-01T00:00:00Z"}'

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program; its standard error goes into its standard output."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            end(child)
        assert child.stdout is not None
        child.stdout.close()


def heard(story: subprocess.Popen[str], what: str) -> dict[str, Any]:
    """The next thing that a story tells."""
    assert story.stdout is not None
    line = story.stdout.readline()
    assert line.startswith("{"), line + story.stdout.read()
    told: dict[str, Any] = json.loads(line)
    assert told["what"] == what
    return told


@pytest.fixture
def head() -> Iterator[Head]:
    with autoscaled_head({"CPU": 1, OPERATOR_NODE: 1}, workers_max=3, idle_seconds=3) as started:
        yield started


def test_nodes_come_as_asked_go_when_given_back_and_are_replaced_when_they_end(head: Head) -> None:
    story = program("-m", "tests.actors.pool_story", head.address)
    with story as told, fake_metadata() as metadata:
        heard(told, "filled")
        heard(told, "refilled")
        heard(told, "shrunk")
        (taken,) = heard(told, "watched")["nodes"]
        metadata.entries["instance-id"] = taken  # as which a node of this autoscaler is started
        metadata.entries["spot/instance-action"] = NOTICE
        watch = ("--address", head.address, "--metadata", metadata.url)
        with program("-m", "raystream.actors.spot", *watch) as watcher:
            assert watcher.wait(60) == 0
            assert watcher.stdout is not None
            assert f"Ray drains node {taken}" in watcher.stdout.read()
        drained = heard(told, "drained")
        assert (drained["node"], drained["deadline"], drained["missing"]) == (taken, AT, 0)
        assert told.wait(60) == 0
