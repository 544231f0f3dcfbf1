"""Which logic runs an operator."""

from __future__ import annotations

from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import Session, by_count, is_triggered
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.logic.batches import BatchLogic, ReferenceLogic, RowsLogic
from raystream.dataflow.logic.interpreted import KeyedLogic, Stateless
from raystream.dataflow.logic.sessions import SessionWindows
from raystream.dataflow.logic.timed import TimedLogic
from raystream.dataflow.logic.triggered import CountWindows, TriggeredWindows
from raystream.dataflow.logic.waiting import WaitLogic
from raystream.dataflow.logic.windows import FixedWindows, WindowLogic
from raystream.dataflow.plan import Plan


def logic_of(spec: OperatorSpec, plan: Plan) -> Logic:
    """A new logic for one instance of an operator."""
    if spec.asking is not None:
        from raystream.dataflow.logic.answered import AnsweredLogic

        return AnsweredLogic(spec)
    if spec.on_error == "stream":
        from raystream.dataflow.logic.failures import failing_logic

        return failing_logic(spec, plan.groups, plan.ticks)
    if spec.compiled:
        from raystream.dataflow.logic.compiled import CompiledLogic

        return CompiledLogic(spec, plan.groups, plan.ticks)
    if spec.window is not None:
        return window_logic(spec, plan.groups, plan.ticks)
    if spec.form == "batch":
        if spec.load is not None:
            return ReferenceLogic(spec)
        return BatchLogic(spec) if spec.state is None else RowsLogic(spec, plan.groups)
    if spec.waits:
        return WaitLogic(spec, plan.groups)
    if spec.timer is not None:
        return TimedLogic(spec, plan.groups)
    return KeyedLogic(spec, plan.groups) if spec.alone else Stateless(spec)


def window_logic(spec: OperatorSpec, groups: int, ticks: int) -> WindowLogic:
    """The interpreted logic of a windowed operator."""
    if isinstance(spec.window, Session):
        return SessionWindows(spec, groups, ticks)
    if by_count(spec.window):
        return CountWindows(spec, groups, ticks)
    kind = TriggeredWindows if is_triggered(spec.window) else FixedWindows
    return kind(spec, groups, ticks)
