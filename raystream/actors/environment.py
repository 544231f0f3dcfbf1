"""The environment of a job's processes: variables, and where they look for modules.

What a process is to have beside what Ray gives all of its processes, Ray gives it by starting a
Python that loads Ray, and then has it start again: that takes nearly a second of a processor.
So a Ray that this process starts gives all of its processes what instances need.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ray
from ray._private import worker
from ray.job_config import JobConfig

from raystream.actors.staff import Environment

MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_ARENA_MAX": "1",
}
"""For the C library: columns of an epoch come from memory that was used before, by any thread. Else
each of them would be mapped and given back anew, and most of that time goes into first touches of
pages."""

_given: dict[str, dict[str, str]] = {}
"""By the address of a Ray, variables that all of its processes have."""


def fixed() -> dict[str, str]:
    """The variables of all instances, whatever the job: a fixed hash seed, memory.

    What the submitter has set of `MEMORY` holds.
    """
    memory = {name: os.environ.get(name, value) for name, value in MEMORY.items()}
    return {"PYTHONHASHSEED": "0", "NUMBA_DISABLE_INTEL_SVML": "1", **memory}


@contextlib.contextmanager
def given(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started meanwhile have these variables."""
    with as_before(variables):
        os.environ.update(variables)
        yield


@contextlib.contextmanager
def as_before(names: Iterable[str]) -> Iterator[None]:
    """Variables of this process are afterwards what they were, or not there again."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def have(address: str, variables: Mapping[str, str]) -> None:
    """All processes of the Ray at this address have these variables, on all of its nodes."""
    _given[address] = dict(variables)


def environments() -> Environment:
    """The variables of the job's processes: what they need beside what Ray gives them already."""
    had = _given.get(ray.get_runtime_context().gcs_address, {})
    modules = {} if _all_find_modules() else _modules()
    lacking = {name: v for name, v in fixed().items() if had.get(name) != v}
    whole = {**fixed(), **_modules()}
    return Environment(whole if lacking or modules else {}, whole if modules else {})


def _modules() -> dict[str, str]:
    """The variable by which processes find the submitter's modules; those of a submitted job do."""
    return {} if submitted() else {"PYTHONPATH": os.pathsep.join(_own_folders())}


def _own_folders() -> list[str]:
    """Where this process looks for modules, but for the libraries of its Python."""
    library = {
        os.path.realpath(sysconfig.get_path(p))
        for p in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    own = [os.path.abspath(p or ".") for p in sys.path]
    return [
        p
        for p in dict.fromkeys(own)
        if os.path.isdir(p)
        and not any(
            os.path.realpath(p) == x or os.path.realpath(p).startswith(x + os.sep) for x in library
        )
    ]


def job_config() -> JobConfig:
    """Have all workers look for modules where this process does, whatever their environment."""
    folders = [] if submitted() else _own_folders()
    return JobConfig(_py_driver_sys_path=folders[::-1])  # each goes before those of the worker


def _all_find_modules() -> bool:
    """Whether all workers look for modules where this process does, whatever their environment.

    Somebody else may have connected this process to Ray, or added folders since.
    """
    me: Any = worker.global_worker  # its stubs do not know all that it has
    told = me.core_worker.get_job_config().py_driver_sys_path
    return submitted() or set(_own_folders()) <= set(told)


def submitted() -> bool:
    """Whether this process is the entrypoint of a submitted Ray job."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
