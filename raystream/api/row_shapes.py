"""How the rows of an operator are stored, from its declaration."""

from __future__ import annotations

from functools import lru_cache

from raystream.api.operators import OperatorSpec
from raystream.api.windows.kinds import Session, in_words, is_triggered
from raystream.errors import InternalError
from raystream.state.images.row_shape import RowShape


@lru_cache(maxsize=256)
def shape_of(spec: OperatorSpec) -> RowShape | None:
    """What the rows of an operator hold; None for one that keeps none."""
    if spec.state is None:
        return None
    fields = tuple(f for k in spec.key if (f := spec.inputs[0].field(k)) is not None)
    return RowShape(
        fields,
        spec.state,
        "" if spec.window is None else f"in {in_words(spec.window)}",
        isinstance(spec.window, Session) or is_triggered(spec.window),
    )


def kept_shape(spec: OperatorSpec) -> RowShape:
    """The same of an operator that keeps rows."""
    shape = shape_of(spec)
    if shape is None:
        raise InternalError(f"{spec.name} keeps no rows")
    return shape
