"""The row of a control stream: one, and the same in every instance of its operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raystream.api.operators import OperatorSpec
from raystream.errors import InternalError, StateError, operator_error
from raystream.schema.types import KeyRange
from raystream.state.images.chain import FULL
from raystream.state.images.image import Image, ImageHeader, InputPosition, decode
from raystream.state.images.row_shape import numbered_shape
from raystream.state.images.upgrade import upgraded
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.object_table import ObjectTable


class ControlRow:
    """Applies the records of a control stream to its row, which stays the same object.

    It is stored as an image of a table with one row, so that an `upgrade` of its class and all that
    is checked of stored rows hold for it, too.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        if spec.control is None:
            raise InternalError(f"{spec.name} has no control stream")
        self.spec, self.control = spec, spec.control
        self._shape = numbered_shape(spec.control.state, 1)
        self.row = spec.control.state.fresh()
        self._known = self._stored()

    def take(self, records: Iterable[Any], epoch: int) -> None:
        """Apply the records of an epoch.

        Raises:
            OperatorError: the user's `control` has raised.
        """
        control, state = self.control, self.control.state
        try:
            for record in records:
                control.method(record, self.row)
                if state.settle is not None:
                    state.settle(self.row)
            if state.tidy is not None:
                state.tidy(self.row)
        except Exception as error:
            doing = "a record of the control stream"
            raise operator_error(self.spec, error, epoch=epoch, doing=doing) from error
        self._known = self._stored()

    def checked(self) -> bytes:
        """The stored form.

        Raises:
            StateError: somebody else than `control` has changed the row.
        """
        if self._stored() != self._known:
            name = self.control.state.name
            raise StateError(
                f"{self.spec.name}.process has changed {name}, which only `control` may change:"
                " other instances would not see it",
                where=self.spec.where,
                hint="What belongs to a key goes into the state of the operator.",
            )
        return self._known

    def _stored(self) -> bytes:
        table = ObjectTable(self._shape, 1)
        table.rows[0] = self.row
        self.row._mark = 1
        _, rows, gone = next(table.capture(FULL, 1).parts(WHOLE))
        header = ImageHeader(
            operator=self.spec.name,
            shape=self._shape.fingerprint,
            groups=1,
            keys=KeyRange(0, 1),
            base=0,
            checkpoint=1,
            input_position=InputPosition(),
        )
        return bytes(Image(header, rows, gone).encode())

    def restore(self, stored: bytes) -> None:
        """Take the values of a stored form.

        Raises:
            StateError: it is of another class, which has no `upgrade`.
        """
        image, shape = decode(stored), self._shape
        if image.header.shape != shape.fingerprint:
            if shape.state.upgrade is None:
                raise StateError(
                    f"the row of the control stream of {self.spec.name} was stored as other state",
                    hint=f"stored: {image.header.shape}\n  now:    {shape.fingerprint}"
                    f"\n  {shape.upgrade_words}",
                )
            image = upgraded(image, shape)
        table = ObjectTable(shape, 1)
        table.apply(image)
        for field in shape.state.fields:
            setattr(self.row, field.name, getattr(table.rows[0], field.name))
        self._known = self._stored()
