"""Tools for testing flows and operators: no Ray, no cluster, no broker, no waiting."""

from raystream.testing.check import check_operator
from raystream.testing.collect import Collect
from raystream.testing.harness import OperatorHarness
from raystream.testing.local import run_local
from raystream.testing.same import difference, same

__all__ = ["Collect", "OperatorHarness", "check_operator", "difference", "run_local", "same"]
