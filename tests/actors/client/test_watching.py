"""What commands say of a job whose controller begins, or was restarted a moment ago."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError
from typer.testing import CliRunner

from raystream.actors.client import changing, rescaling
from raystream.actors.client import watching as looking
from raystream.actors.control.answers import Moves
from raystream.actors.control.controller import Controller
from raystream.cli.app import app
from raystream.cli.errors import INTERRUPTED
from raystream.errors import JobError


@contextmanager
def no_cluster(address: str) -> Iterator[None]:
    yield


def beginning() -> Controller:
    """A controller that has not come to have a machine."""
    made = Controller.__new__(Controller)
    made._loop, made._over = None, threading.Event()
    return made


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    made = beginning()
    monkeypatch.setattr(looking, "visited", no_cluster)
    monkeypatch.setattr(looking, "running", lambda: ["words-1"])
    monkeypatch.setattr(looking, "actor", lambda run, process: made)
    monkeypatch.setattr(looking, "asked", lambda run, method: method())
    monkeypatch.setattr(looking, "node_names", lambda: {})
    monkeypatch.setattr(looking, "LOOK_SECONDS", 0.01)
    return made


def test_who_looks_waits_until_there_is_something_to_see(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([None, None, "status", None])
    monkeypatch.setattr(Controller, "status", lambda self: next(said))
    over = iter(["", "", "all its input was processed"])
    outcome = lambda self: SimpleNamespace(ended=next(over))  # noqa: E731
    monkeypatch.setattr(Controller, "outcome", outcome)
    assert list(looking.looks("words", "auto", 0.0)) == [("status", {})]


def test_who_looks_does_not_wait_for_ever(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "BEGIN_SECONDS", 0.1)
    with pytest.raises(JobError, match="has not begun within"):
        list(looking.looks("words", "auto", 0.0))


def scale(monkeypatch: pytest.MonkeyPatch, *said: Any) -> list[Any]:
    """What was moved, when the controller says this."""
    call = SimpleNamespace(remote=lambda *a: None)
    there = SimpleNamespace(moves=call, scale=call)
    answers = iter(said)
    monkeypatch.setattr(changing, "visited", no_cluster)
    monkeypatch.setattr(changing, "running", lambda: ["words-1"])
    monkeypatch.setattr(changing, "actor", lambda run, process: there)
    monkeypatch.setattr(changing, "answered", lambda run, asked: next(answers))
    return rescaling.scale("words", "auto", {"count": 2}, "replay")


def test_who_scales_waits_for_a_controller_that_was_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under: Any = SimpleNamespace(operator="count", why="")
    before, moving, restarted = Moves((), ()), Moves((under,), ()), beginning().moves()
    moved: Any = Moves((), ("new",))  # type: ignore[arg-type]
    assert scale(monkeypatch, before, "", moving, restarted, moving, moved) == ["new"]


def test_a_job_that_ended_before_it_could_move_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match="has ended before it could move"):
        scale(monkeypatch, Moves((), ()), "", Moves((), (), over=True))


@pytest.mark.parametrize(
    ("left", "said"), [(None, "words-1 has ended meanwhile"), ("restarts", "does not answer")]
)
def test_a_job_that_ends_while_it_is_asked_has_ended_and_is_not_at_fault(
    left: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(call: object, timeout: float) -> None:
        raise RayActorError

    monkeypatch.setattr(changing.ray, "get", died)
    monkeypatch.setattr(changing, "actor", lambda run, process: left)
    with pytest.raises(JobError, match=said):
        changing.answered("words-1", None)


def test_who_leaves_top_does_not_end_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(job: str, address: str, seconds: float) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(looking, "looks", looks)
    found = CliRunner().invoke(app, ["top", "words"])
    assert found.exit_code == INTERRUPTED
    assert "interrupted" in found.stderr and "ended" not in found.stderr
