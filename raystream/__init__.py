"""raystream: stateful stream processing on Ray, in Python. Import it as `rs`.

Each part may import those below it, and `lint-imports` keeps it so.

    cli         the command `raystream`, and what it draws
    run         chooses where a flow runs: in this process, or on a Ray cluster
    page        jobs of a cluster in a browser, live
    actors      a job on a cluster: the only part that knows Ray, sockets and threads
    simulation  a job in one process, with any order of steps and faults at any of them
    testing     what users need to test their operators
    local       a job in this process, for users
    controller  what a cluster decides: plans, commits, recoveries, moves, sizes
    dataflow    how one instance runs: inlets, order, logic, emission
    durable     checkpoints in a folder or a bucket, which outlive the cluster
    io          sources and sinks
    compiled    operators through Numba
    api         what people write
    state       what an operator knows: keys, tables, logs, checkpoint images
    schema      the shapes: fields, records, state rows, columns
    push        a client that pushes records into a job: it needs but errors and security
    filesystem  paths, folders and files as several parts need them
    security    who may connect: tokens, certificates, TLS
    native      private parts of Numba, PyArrow and the operating system
    plugins     names that other packages add: schemes of stores, connectors
    renamed     old names of parameters and fields, for one version more
    submitted   whether Ray has started this process as a job, and keeps what it prints
    errors      what is raised
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raystream.api import runner

if TYPE_CHECKING:
    from raystream import io as io
    from raystream import testing as testing
    from raystream.actors.client.querying import KeyState as KeyState
    from raystream.actors.client.querying import StateReader as StateReader
    from raystream.actors.client.querying import query as query
    from raystream.api.batch import Batch as Batch
    from raystream.api.batch import Rows as Rows
    from raystream.api.connectors import Sink as Sink
    from raystream.api.connectors import Source as Source
    from raystream.api.epochs import by_arrival as by_arrival
    from raystream.api.epochs import by_time as by_time
    from raystream.api.flow import Flow as Flow
    from raystream.api.flow import Stream as Stream
    from raystream.api.keys import key_groups as key_groups
    from raystream.api.operators import FailedRecord as FailedRecord
    from raystream.api.operators import operator as operator
    from raystream.api.windows.kinds import global_window as global_window
    from raystream.api.windows.kinds import session as session
    from raystream.api.windows.kinds import sliding as sliding
    from raystream.api.windows.kinds import tumbling as tumbling
    from raystream.api.world.context import now as now
    from raystream.api.world.context import random as random
    from raystream.api.world.context import request_id as request_id
    from raystream.api.world.controlled import controlled as controlled
    from raystream.controller.elastic.policy import CpuThreshold as CpuThreshold
    from raystream.controller.elastic.policy import Load as Load
    from raystream.controller.elastic.policy import Policy as Policy
    from raystream.controller.elastic.policy import RateBased as RateBased
    from raystream.controller.elastic.policy import Report as Report
    from raystream.controller.elastic.policy import Target as Target
    from raystream.controller.elastic.policy import Unable as Unable
    from raystream.controller.elastic.pool import PoolOptions as PoolOptions
    from raystream.durable.states import SavedStates as SavedStates
    from raystream.durable.states import states as states
    from raystream.schema.state import State as State
    from raystream.schema.state import forget as forget
    from raystream.schema.types import NEVER as NEVER
    from raystream.schema.types import Array as Array
    from raystream.schema.types import Float32 as Float32
    from raystream.schema.types import Float64 as Float64
    from raystream.schema.types import Int8 as Int8
    from raystream.schema.types import Int16 as Int16
    from raystream.schema.types import Int32 as Int32
    from raystream.schema.types import Int64 as Int64
    from raystream.schema.types import KeyRange as KeyRange
    from raystream.schema.types import SinkContext as SinkContext
    from raystream.schema.types import SourceContext as SourceContext
    from raystream.schema.types import Split as Split
    from raystream.schema.types import Timer as Timer
    from raystream.schema.types import Window as Window
    from raystream.schema.types import decimal as decimal
    from raystream.schema.types import field as field
    from raystream.schema.types import timestamp as timestamp
    from raystream.schema.types import zeros as zeros

__version__ = "0.1.0"

_HOMES = {
    "actors.client.querying": ("KeyState", "StateReader", "query"),
    "api.batch": ("Batch", "Rows"),
    "api.connectors": ("Sink", "Source"),
    "api.world.controlled": ("controlled",),
    "api.epochs": ("by_arrival", "by_time"),
    "api.flow": ("Flow", "Stream"),
    "api.keys": ("key_groups",),
    "api.operators": ("FailedRecord", "operator"),
    "api.windows.kinds": ("global_window", "session", "sliding", "tumbling"),
    "api.world.context": ("now", "random", "request_id"),
    "controller.elastic.policy": (
        "CpuThreshold",
        "Load",
        "Policy",
        "RateBased",
        "Report",
        "Target",
        "Unable",
    ),
    "controller.elastic.pool": ("PoolOptions",),
    "durable.states": ("SavedStates", "states"),
    "schema.state": ("State", "forget"),
    "schema.types": (
        "NEVER",
        "Array",
        "Float32",
        "Float64",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "KeyRange",
        "SinkContext",
        "SourceContext",
        "Split",
        "Timer",
        "Window",
        "decimal",
        "field",
        "timestamp",
        "zeros",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = list(_HOME_OF)
__all__ += ["io", "testing"]


if not TYPE_CHECKING:  # or every name that is not there would be fine to a type checker

    def __getattr__(name: str) -> Any:
        """Load public names when they are first used, so that `import raystream` stays quick."""
        if name in ("io", "testing"):
            return importlib.import_module(f"raystream.{name}")
        if name not in _HOME_OF:
            from raystream.errors import meant

            raise AttributeError(f"raystream has no {name!r}{meant(name, __all__)}")
        value = getattr(importlib.import_module(f"raystream.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def _run() -> Callable[..., Any]:
    from raystream.run import run

    return run


runner.load = _run


def __dir__() -> list[str]:
    return __all__
