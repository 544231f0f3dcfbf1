"""The environment of a job's processes: variables, and where they look for modules.

To give one process more variables than the others, Ray starts a Python that loads Ray, and has it
start again: that takes nearly a second of a processor. So a Ray that this process starts gives all
of its processes the variables that instances need.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import ray
from ray.job_config import JobConfig

from raystream.actors.cluster import ray_internals as internals
from raystream.actors.cluster.log_lines import FORM
from raystream.submitted import submitted

MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_ARENA_MAX": "1",
}
"""For the C library: columns of an epoch come from memory that was used before, by any thread.
Otherwise each column would be mapped and given back again, and most of that time goes into first
touches of pages."""

SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval in instances and keepers. With Python's own 5 ms the compute
thread loses three epochs whenever another thread ships a checkpoint or answers the controller."""

_given: dict[str, dict[str, str]] = {}
"""The variables that all processes of a Ray have, by its address."""


class Environment(NamedTuple):
    """Variables of a job's processes."""

    instances: dict[str, str]
    """Those of the processes that run operators."""
    others: dict[str, str]
    """Those of all others. Empty if they find the submitter's modules without variables: a process
    with variables takes longer to start."""


def runtime_env(variables: dict[str, str]) -> dict[str, Any]:
    """The runtime environment with these variables, as Ray wants it."""
    return {"env_vars": variables} if variables else {}


def fixed() -> dict[str, str]:
    """The variables of all instances of any job: a fixed hash seed, memory, the form of logs.

    A variable of `MEMORY` that the submitter has set keeps its value, and so does `FORM`.
    """
    memory = {name: os.environ.get(name, value) for name, value in MEMORY.items()}
    logs = {FORM: os.environ[FORM]} if FORM in os.environ else {}
    return {"PYTHONHASHSEED": "0", "NUMBA_DISABLE_INTEL_SVML": "1", **memory, **logs}


@contextlib.contextmanager
def given(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started inside the block have these variables."""
    with as_before(variables):
        os.environ.update(variables)
        yield


@contextlib.contextmanager
def as_before(names: Iterable[str]) -> Iterator[None]:
    """These variables of this process are afterwards as they were: the same, or not set."""
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
    """Note that all processes of the Ray at this address have these variables, on all nodes."""
    _given[address] = dict(variables)


def environments() -> Environment:
    """The variables of the job's processes, besides those that Ray gives them already."""
    had = _given.get(ray.get_runtime_context().gcs_address, {})
    modules = {} if _all_find_modules() else _modules()
    lacking = {name: v for name, v in fixed().items() if had.get(name) != v}
    whole = {**fixed(), **_modules()}
    return Environment(whole if lacking or modules else {}, whole if modules else {})


def _modules() -> dict[str, str]:
    """The variable by which processes find the submitter's modules; none in a submitted Ray job,
    whose processes find them."""
    return {} if submitted() else {"PYTHONPATH": os.pathsep.join(_own_folders())}


def _own_folders() -> list[str]:
    """The folders where this process looks for modules, without the libraries of its Python."""
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
    return internals.job_config(folders[::-1])  # each goes before those of the worker


def _all_find_modules() -> bool:
    """Whether all workers look for modules where this process does, whatever their environment.

    Other code may have connected this process to Ray, or added folders since.
    """
    return submitted() or set(_own_folders()) <= internals.driver_folders()


def node_address() -> str:
    """The address by which other nodes reach this one."""
    find: Any = ray.util.get_node_ip_address
    return str(find())


def node_id() -> str:
    """The id of this node; empty where this process is connected to no Ray. To ask Ray itself would
    start one."""
    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""
