"""Tools for testing flows and operators: no Ray, no cluster, no broker, no waiting.

What users import stands in `__all__`; the modules:

    check      `check_operator`: whether an operator may be moved and recovered
    harness    `OperatorHarness`: send records to one operator, move time, see what comes out
    bench      what both of them stand on: one operator between feeds and a reader
    collect    `Collect`: a sink that keeps what it is given
    sinks      `check_sink`: whether a sink writes each record once, whatever dies
    sources    `check_source`: whether each record of a source comes once, whatever dies
    same       `same` and `difference`: records compared by type and value
"""

from raystream.local.job import run_local
from raystream.testing.check import check_operator
from raystream.testing.collect import Collect
from raystream.testing.harness import OperatorHarness
from raystream.testing.same import difference, same
from raystream.testing.sinks import check_sink
from raystream.testing.sources import check_source

__all__ = [
    "Collect",
    "OperatorHarness",
    "check_operator",
    "check_sink",
    "check_source",
    "difference",
    "run_local",
    "same",
]


def __dir__() -> list[str]:
    return __all__
