"""What variables the processes of a job have, and where they find modules."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import worker
from ray.job_config import JobConfig

import raystream as rs
from raystream.actors.cluster import connecting, environment
from raystream.actors.cluster.environment import MEMORY, Environment, environments, fixed

ADDRESS = "127.0.0.1:1"


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where a Ray that was started here tells its workers to look for modules."""
    told: list[JobConfig] = []
    there: dict[str, str] = {}

    def init(*_: Any, job_config: JobConfig, **__: Any) -> None:
        told.append(job_config)
        there.update(os.environ)

    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(environment, "_given", {})
    context = SimpleNamespace(gcs_address=ADDRESS)
    monkeypatch.setattr(environment.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(connecting.ray, "init", init)
    connecting.start_ray()
    assert there.items() >= fixed().items() and "PYTHONHASHSEED" not in os.environ
    config = SimpleNamespace(py_driver_sys_path=told[0]._py_driver_sys_path)
    core = SimpleNamespace(get_job_config=lambda: config)
    monkeypatch.setattr(worker, "global_worker", SimpleNamespace(core_worker=core))
    return list(told[0]._py_driver_sys_path)


def test_the_processes_of_a_job_find_what_the_submitter_imports(folders: list[str]) -> None:
    assert os.path.dirname(os.path.dirname(rs.__file__)) in folders
    assert not any("site-packages" in p for p in folders)


def test_ray_is_told_of_what_it_does_not_give_already(
    folders: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modules = {"PYTHONPATH": os.pathsep.join(folders[::-1])}
    assert environments() == ({}, {})
    environment.have(ADDRESS, {**fixed(), "PYTHONHASHSEED": "7"})
    assert environments() == ({**fixed(), **modules}, {})
    monkeypatch.setattr(environment, "_given", {})  # somebody else has started it
    assert environments() == ({**fixed(), **modules}, {})
    environment.have(ADDRESS, fixed())
    assert environments() == ({}, {})
    monkeypatch.syspath_prepend(tmp_path)
    modules = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *folders[::-1]])}
    assert environments() == Environment({**fixed(), **modules}, {**fixed(), **modules})


def test_the_processes_of_a_job_keep_memory_as_the_submitter_wants(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folders
    for name in MEMORY:
        monkeypatch.delenv(name, raising=False)
    assert fixed().items() >= MEMORY.items()
    name = next(iter(MEMORY))
    monkeypatch.setenv(name, "65536")
    assert fixed()[name] == "65536"
    assert environments().instances[name] == "65536"  # it was not when Ray was started


def test_what_is_given_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "before")
    with environment.given({"GIVEN": "1", "GIVEN_TOO": "2"}):
        assert (os.environ["GIVEN"], os.environ["GIVEN_TOO"]) == ("1", "2")
    assert os.environ["GIVEN"] == "before" and "GIVEN_TOO" not in os.environ


def test_in_a_submitted_job_ray_sees_to_modules(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folders
    monkeypatch.setattr(environment, "_given", {})
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert environments() == (fixed(), {})
