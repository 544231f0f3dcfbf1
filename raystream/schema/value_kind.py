"""How the values of one Python type are stored: a row of the table of kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from raystream.schema.types import Digits, TimeFormat

Stored = Literal["fixed", "text", "bytes", "decimal"]

INT64 = range(-(1 << 63), 1 << 63)


class Misfit(ValueError):
    """A value has no place in its field. `hint`: what to do about it."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueKind:
    """How the values of one Python type are stored. There is one object per type."""

    name: str
    """What fingerprints and messages call the stored form: part of the stored format."""
    python: Any
    """The class of the values, or the `Literal`."""
    stored: Stored
    """The kind of column."""
    dtype: str = ""
    """The NumPy dtype of a `fixed` column."""
    digits: Digits | None = None
    """The digits of a `decimal` column."""
    store: Callable[[Any], Any]
    """Makes an int, text, bytes or Decimal of a value, or raises `Misfit`."""
    restore: Callable[[Any], Any]
    """Makes a value of what `store` made, or raises `ValueError` or `OverflowError`."""
    exact: Callable[[Any], bool]
    """Whether a value would come back in every respect as it is."""
    by_class: bool = False
    """Whether `exact` only asks for the class."""
    text: Callable[[Any], str] = str
    """What CSV and JSON hold, where that is text, of a value that came back from storage."""
    parse: Callable[[str], Any]
    """Makes a value of the text that a file holds, or raises `Misfit` or `ValueError`."""
    members: tuple[Any, ...] = ()
    """All stored values there are, of enumerations and literals."""
    bounds: tuple[int, int] | None = None
    """The least and the greatest stored number that has a value."""
    number: bool = False
    """Whether compiled code and rows may treat values as the numbers that they are."""
    written: TimeFormat | None = None
    """How files hold times, where that is not ISO 8601 with a zone."""
    described: bool = False
    """Whether msgpack holds values so that they come back without their annotation."""

    def settle(self, value: Any) -> Any:
        """A value as it would come back from storage, or raises `Misfit`."""
        return value if self.exact(value) else self.restore(self.store(value))

    def fits(self, value: Any) -> bool:
        """Whether a value can be stored."""
        try:
            self.store(value)
        except ValueError:
            return False
        return True
