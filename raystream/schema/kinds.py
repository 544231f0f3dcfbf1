"""The table of kinds: Python types that are stored as something plainer, and how each one is.

A column holds numbers, text, bytes or decimals. A `ValueKind` says for one Python type which of
them its values become, and how they come back; everything that stores, sends, checks, hashes or
writes values asks it, and nothing else knows of a single type. To add a type is to add a row here
(see `docs/decisions/0028-kinds-of-values.md`).

    type                stored as                            in msgpack, inside lists and dicts
    datetime            int64, microseconds since 1970, UTC  extension 1
    date                int32, days since 1970               extension 2
    timedelta           int64, microseconds                  extension 3
    Decimal             decimal128 of declared digits        extension 4, as text
    UUID                16 bytes                             extension 5
    Enum, IntEnum, ...  the value, if all values are ints    what is stored
                        or all are text; otherwise the name
    Literal             its values, all of one type          what is stored
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cache
from typing import Any, Literal
from uuid import UUID

import numpy as np

from raystream.errors import GraphError
from raystream.schema.member_kinds import enum_kind, literal_kind
from raystream.schema.time_kinds import (
    DAY,
    LENGTH,
    MOMENT,
    days,
    length,
    micros,
    moment_kind,
)
from raystream.schema.types import Digits, TimeFormat
from raystream.schema.value_kind import Misfit, ValueKind


def _uuid_bytes(value: Any) -> bytes:
    if isinstance(value, UUID):
        return value.bytes
    raise Misfit(f"{value!r:.80} is no UUID", "uuid.UUID(...) makes one of text.")


IDENTIFIER = ValueKind(
    name="UUID",
    python=UUID,
    stored="bytes",
    store=_uuid_bytes,
    restore=lambda stored: UUID(bytes=stored),
    exact=lambda v: type(v) is UUID,
    by_class=True,
    parse=lambda text: UUID(text.strip()),
    described=True,
)


@cache
def decimal_kind(digits: Digits) -> ValueKind:
    """The kind of decimals with this number of digits."""
    unit = Decimal(1).scaleb(-digits.scale)
    context = Context(prec=digits.precision, traps=[Inexact, InvalidOperation])
    before = digits.precision - digits.scale

    def store(value: Any) -> Decimal:
        if type(value) is int or (isinstance(value, np.integer)):
            value = Decimal(int(value))
        if not isinstance(value, Decimal):
            raise Misfit(f"{value!r:.80} is no Decimal", "Decimal(str(value)) makes one.")
        if not value.is_finite():
            raise Misfit(f"{value} is no number", "Declare that it may be None, and give None.")
        try:
            made = value.quantize(unit, context=context)
        except Inexact:
            raise Misfit(
                f"{value} has more than {digits.scale} digits after the point",
                f"Round it: value.quantize(Decimal('{unit}')); or declare more digits.",
            ) from None
        except InvalidOperation:
            raise Misfit(
                f"{value} has more than {before} digits before the point, or more than"
                f" {digits.scale} after it",
                "Declare more digits (up to 38): rs.decimal(precision, scale).",
            ) from None
        return made if made else abs(made)  # of zeros only the one without a sign is stored

    def exact(value: Any) -> bool:
        if type(value) is not Decimal or not value.is_finite():
            return False
        sign, found, exponent = value.as_tuple()
        return (
            exponent == -digits.scale
            and len(found) <= digits.precision
            and (not sign or bool(value))
        )

    return ValueKind(
        name=str(digits),
        python=Decimal,
        stored="decimal",
        digits=digits,
        store=store,
        restore=lambda stored: stored,
        exact=exact,
        text=lambda v: format(v, "f"),
        parse=lambda text: store(Decimal(text.strip())),
        described=True,
    )


_KINDS: dict[Any, ValueKind] = {
    datetime: MOMENT,
    date: DAY,
    timedelta: LENGTH,
    UUID: IDENTIFIER,
}


def kind_of(base: Any, marks: Sequence[Any] = ()) -> ValueKind | None:
    """The kind of a type, bare of `Annotated` and `| None`; None where it has no row in the table.

    Raises:
        GraphError: a Decimal does not say how many digits it has; an enumeration cannot be stored.
    """
    if base is Decimal:
        digits = next((m for m in marks if isinstance(m, Digits)), None)
        if digits is None:
            raise GraphError(
                "a Decimal does not say how many digits it has",
                hint="Annotated[Decimal, rs.decimal(12, 2)] has 12, of them 2 after the point.",
            )
        return decimal_kind(digits)
    written = next((m for m in marks if isinstance(m, TimeFormat)), None)
    if base is datetime and written is not None:
        return moment_kind(written)
    if typing.get_origin(base) is Literal:
        return literal_kind(base)
    if isinstance(base, type) and issubclass(base, enum.Enum):
        return enum_kind(base)
    try:
        return _KINDS.get(base)
    except TypeError:  # an annotation that cannot be hashed
        return None


def plain_key(value: Any) -> Any:
    """A part of a key as it is stored: what is hashed."""
    if isinstance(value, enum.Enum):
        return enum_kind(type(value)).store(value)
    kind = _KINDS.get(type(value))
    return value if kind is None else kind.store(value)


def plain_scalar(value: np.generic) -> Any:
    """A scalar of NumPy's as a value of Python's."""
    if isinstance(value, np.datetime64):
        unit = np.datetime_data(value.dtype)[0]
        if unit in ("Y", "M", "W", "D"):
            return DAY.restore(days(value))
        return MOMENT.restore(micros(value))
    if isinstance(value, np.timedelta64):
        return LENGTH.restore(length(value))
    return value.item()
