"""raystream: stateful stream processing on Ray, in Python. Import it as `rs`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raystream import io as io
    from raystream import testing as testing
    from raystream.api.batch import Batch as Batch
    from raystream.api.batch import Rows as Rows
    from raystream.api.flow import Flow as Flow
    from raystream.api.flow import Stream as Stream
    from raystream.api.flow import by_arrival as by_arrival
    from raystream.api.flow import by_time as by_time
    from raystream.api.keys import key_groups as key_groups
    from raystream.api.operators import operator as operator
    from raystream.api.protocols import Sink as Sink
    from raystream.api.protocols import Source as Source
    from raystream.api.windows import session as session
    from raystream.api.windows import sliding as sliding
    from raystream.api.windows import tumbling as tumbling
    from raystream.controller.policy import CpuThreshold as CpuThreshold
    from raystream.controller.policy import Load as Load
    from raystream.controller.policy import Policy as Policy
    from raystream.controller.policy import RateBased as RateBased
    from raystream.controller.policy import Report as Report
    from raystream.controller.policy import Target as Target
    from raystream.controller.policy import Unable as Unable
    from raystream.controller.pool import PoolOptions as PoolOptions
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
    from raystream.schema.types import Split as Split
    from raystream.schema.types import Timer as Timer
    from raystream.schema.types import Window as Window
    from raystream.schema.types import field as field
    from raystream.schema.types import zeros as zeros

__version__ = "0.1.0"

_HOMES = {
    "api.batch": ("Batch", "Rows"),
    "api.flow": ("Flow", "Stream", "by_arrival", "by_time"),
    "api.keys": ("key_groups",),
    "api.operators": ("operator",),
    "api.protocols": ("Sink", "Source"),
    "api.windows": ("session", "sliding", "tumbling"),
    "controller.policy": (
        "CpuThreshold",
        "Load",
        "Policy",
        "RateBased",
        "Report",
        "Target",
        "Unable",
    ),
    "controller.pool": ("PoolOptions",),
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
        "Split",
        "Timer",
        "Window",
        "field",
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
            raise AttributeError(f"module 'raystream' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"raystream.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
