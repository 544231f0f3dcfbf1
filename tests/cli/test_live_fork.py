"""Which versions `fork --live` compares, and what it refuses; the job itself is not there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raystream.actors.client import forking
from raystream.actors.control.answers import RunningCode
from raystream.cli.app import app
from raystream.cli.load import load_flow
from raystream.controller.planning.upgrading import outline_of_flow
from raystream.errors import JobError

SHOP = """
from collections.abc import Iterator
from typing import NamedTuple
import raystream as rs

class Order(NamedTuple):
    time: int
    customer: str

class Seen(NamedTuple):
    customer: str
    n: int

class Orders(rs.State):
    n: int = 0

@rs.operator(key="KEY")
def count(order: Order, orders: Orders) -> Iterator[Seen]:
    orders.n += 1
    yield Seen(order.customer, orders.n)

flow = rs.Flow("shop")
source = flow.source(rs.io.iterable([Order(0, "ann")], Order), epochs=rs.by_time(seconds=1))
source.through(count, name="count").to(rs.io.console(), name="out")
"""


class Running:
    """Stands in for a running job. It notes the plan with which it is forked, and has no more."""

    run = "shop-1"

    def __init__(self, code: RunningCode) -> None:
        self.code = code
        self.files: list[str] = []

    def begin(self, name: str, plan: Any) -> Any:
        self.files.append(plan.vertex("count").spec.process.__code__.co_filename)
        raise JobError("it is only a test")


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    for name, key in (("old", "customer"), ("new", "customer"), ("other", "time")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "live_shop.py").write_text(SHOP.replace("KEY", key))
    outline, _ = outline_of_flow(load_flow("live_shop:flow", str(tmp_path / "old")))
    sys.modules.pop("live_shop", None)
    monkeypatch.chdir(tmp_path / "old")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    found = Running(RunningCode(outline, 0, (), False, "live_shop:flow"))

    @contextmanager
    def running_job(job: str, address: str) -> Iterator[Running]:
        yield found

    monkeypatch.setattr(forking, "running_job", running_job)
    return found


def fork(job: str, more: str) -> Any:
    command = f"fork {job} --as trial --live --code live_shop:flow {more}"
    return CliRunner().invoke(app, shlex.split(command))


@pytest.mark.parametrize("job", ["live_shop:flow", "shop"])
def test_the_first_version_is_the_one_of_the_current_folder(
    tmp_path: Path, running: Running, job: str
) -> None:
    done = fork(job, "--code-folder ../new")
    assert "it is only a test" in done.output
    assert running.files == [str(tmp_path / "old" / "live_shop.py")]


def test_a_flow_with_other_streams_is_not_fed_by_the_job(running: Running) -> None:
    done = fork("shop", "--code-folder ../other")
    assert "live_shop:flow cannot be fed by shop-1" in done.output
    assert "Without --live" in done.output and not running.files


@pytest.mark.parametrize("option", ["--durable cuts", "--from 3", "--rename a=b", "--drop a"])
def test_what_belongs_to_saved_checkpoints_is_refused(option: str) -> None:
    assert f"{option.split()[0]} is not for --live" in fork("shop", option).output
