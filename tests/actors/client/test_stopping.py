"""Which of the running jobs is meant, and until when a job runs."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from raystream.actors.client import changing, stopping
from raystream.actors.client.changing import ChangedJob
from raystream.actors.client.jobs import chosen
from raystream.actors.control.actor_names import job_of, new_run
from raystream.actors.control.answers import JobOutcome
from raystream.errors import ConfigError, JobError

RUNS = ["counts-0000000a", "tolls-0000000b", "tolls-0000000c"]


@pytest.mark.parametrize(
    ("job", "run"), [("counts", RUNS[0]), (RUNS[0], RUNS[0]), (RUNS[2], RUNS[2])]
)
def test_a_job_is_found_by_its_name_or_its_runs(job: str, run: str) -> None:
    assert chosen(job, RUNS) == run


def test_the_only_job_needs_no_name() -> None:
    assert chosen("", RUNS[:1]) == RUNS[0]
    with pytest.raises(ConfigError, match="3 jobs are running") as caught:
        chosen("", RUNS)
    assert caught.value.hint == f"Running: {', '.join(RUNS)}. Name one of them."
    with pytest.raises(ConfigError, match="no job is running"):
        chosen("", [])


def test_what_is_absent_or_ambiguous_is_refused_with_what_runs() -> None:
    with pytest.raises(ConfigError, match="no job words is running") as caught:
        chosen("words", RUNS)
    assert all(run in caught.value.hint for run in RUNS)
    with pytest.raises(ConfigError, match="tolls runs 2 times") as caught:
        chosen("tolls", RUNS)
    assert caught.value.hint == f"Running: {RUNS[1]}, {RUNS[2]}. Name one of them."
    with pytest.raises(ConfigError) as caught:
        chosen("words", [])
    assert caught.value.hint.startswith("What became of a job that has ended is")


def test_a_run_says_whose_it_is() -> None:
    assert job_of(new_run("lines per second")) == "lines-per-second"
    assert new_run("a") != new_run("a")


def ending(monkeypatch: pytest.MonkeyPatch, *outcomes: JobOutcome) -> tuple[Any, list[str]]:
    """A controller that stands so, one after the other; and what is told of it."""
    monkeypatch.setattr(stopping, "asked", lambda run, method: method())
    monkeypatch.setattr(
        stopping, "time", SimpleNamespace(monotonic=count(0.0, 1.0).__next__, sleep=id)
    )
    monkeypatch.setattr(stopping, "_left", lambda run: None)
    stands = chain(outcomes, repeat(outcomes[-1]))
    return SimpleNamespace(outcome=stands.__next__), []


def test_why_a_job_does_not_end_yet_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [
        JobOutcome("", f"checkpoint {n} was not saved in there: it is full") for n in (7, 9, 11)
    ]
    controller, told = ending(
        monkeypatch,
        JobOutcome("", ""),
        *failed,
        JobOutcome("", ""),
        JobOutcome("it was stopped", ""),
    )
    assert stopping._ended(RUNS[0], controller, True, told.append) == "it was stopped"
    assert told == [
        f"{RUNS[0]} runs on: {failed[0].unsaved}; with the next checkpoint it is tried again"
    ]


@pytest.mark.parametrize("save", [False, True])
def test_a_job_that_runs_on_is_told_with_what_to_do(
    save: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, told = ending(monkeypatch, JobOutcome("", "checkpoint 7 was not saved"))
    with pytest.raises(JobError, match="runs on after 600 s") as caught:
        stopping._ended(RUNS[0], controller, save, told.append)
    assert len(told) == 1
    assert caught.value.hint.startswith("checkpoint 7 was not saved")
    assert ("without --save ends it at once" in caught.value.hint) == save


@pytest.mark.parametrize(
    ("save", "said"),
    [(True, stopping.STILL), (False, f"{RUNS[0]} was told to stop, and ends all the same")],
)
def test_who_does_not_wait_for_the_end_is_told_that_it_comes(
    save: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    controller, told = ending(monkeypatch, JobOutcome("", ""))
    controller.stop_saved = controller.cancel = lambda: ""
    monkeypatch.setattr(stopping, "visited", lambda address: nullcontext())
    monkeypatch.setattr(stopping, "running", lambda: RUNS)
    monkeypatch.setattr(stopping, "actor", lambda run, name: controller)
    monkeypatch.setattr(stopping, "_ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stopping.stop("counts", "auto", save=save, tell=told.append)
    assert told == [said]


@pytest.mark.parametrize(
    ("looks", "killed", "own"), [(3, 0, False), (30, 1, False), (10**9, 1, False), (3, 0, True)]
)
def test_a_job_that_was_stopped_is_waited_for_and_ended_once(
    looks: int, killed: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it is among those that run, but not for ever; its own Ray, once that has ended, is
    not asked any more."""
    context = SimpleNamespace(gcs_address="127.0.0.1:7")
    monkeypatch.setattr(stopping.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(stopping, "listens", lambda address: not own or seen < looks)
    now, seen, kills = 0.0, 0, []

    def running() -> list[str]:
        nonlocal seen
        seen += 1
        return RUNS if seen <= looks else RUNS[1:]

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(stopping, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(stopping, "running", running)
    monkeypatch.setattr(stopping, "kill", lambda run, process: kills.append(run))
    stopping._left(RUNS[0])
    assert kills == [RUNS[0]] * killed
    assert seen == looks + (not own) or now >= 2 * stopping.LEAVE_SECONDS


def having(monkeypatch: pytest.MonkeyPatch, refusal: str, *outcomes: JobOutcome) -> None:
    """A job that stands so, one after the other, and is asked for a checkpoint after the first."""
    stands = iter(outcomes)
    controller = SimpleNamespace(checkpoint=SimpleNamespace(remote=lambda: refusal))
    look = SimpleNamespace(remote=lambda: next(stands))
    monkeypatch.setattr(changing, "answered", lambda run, call: call)
    monkeypatch.setattr(changing, "LOOK_SECONDS", 0.0)
    job = ChangedJob[JobOutcome](RUNS[0], controller, look)
    monkeypatch.setattr(stopping, "changed_job", lambda *_: nullcontext(job))


def test_a_checkpoint_is_waited_for_until_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, "", *(JobOutcome("", "", n) for n in (7, 7, 9)))
    assert stopping.checkpoint("counts", "auto") == f"{RUNS[0]}: checkpoint 9 is stored"


def test_with_a_durable_tier_it_is_waited_for_until_it_is_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was committed before it was asked for does not count."""
    stands = ((7, 5), (9, 5), (9, 7), (9, 9))
    having(monkeypatch, "", *(JobOutcome("", "", *each) for each in stands))
    assert stopping.checkpoint("counts", "auto") == f"{RUNS[0]}: checkpoint 9 is saved"


def test_why_there_is_no_checkpoint_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch, "the job stores no checkpoints", JobOutcome("", ""))
    with pytest.raises(ConfigError, match=f"{RUNS[0]}: the job stores no checkpoints"):
        stopping.checkpoint("counts", "auto")
    having(monkeypatch, "", JobOutcome("", "", 7), JobOutcome("it failed", "it is full", 7))
    with pytest.raises(JobError, match=r"ended before it could take a checkpoint \(it is full\)"):
        stopping.checkpoint("counts", "auto")
