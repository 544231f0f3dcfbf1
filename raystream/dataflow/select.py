"""Which logic runs an operator."""

from __future__ import annotations

from raystream.api.operators import OperatorSpec
from raystream.dataflow.batches import BatchLogic, ReferenceLogic, RowsLogic
from raystream.dataflow.logic import Keyed, Logic, Stateless
from raystream.dataflow.plan import Plan
from raystream.dataflow.windows import window_logic


def logic_of(spec: OperatorSpec, plan: Plan) -> Logic:
    """A new logic for one instance of an operator."""
    if spec.compiled:
        from raystream.dataflow.compiled import CompiledLogic

        return CompiledLogic(spec, plan.groups, plan.ticks)
    if spec.window is not None:
        return window_logic(spec, plan.groups, plan.ticks)
    if spec.form == "batch":
        if spec.load is not None:
            return ReferenceLogic(spec)
        return BatchLogic(spec) if spec.state is None else RowsLogic(spec, plan.groups)
    return Keyed(spec, plan.groups) if spec.keyed else Stateless(spec)
