"""Records that are at hand in Python as a source. A position is a number of records of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from raystream.api.arguments import check_function, named
from raystream.api.batch import Batch
from raystream.api.connectors import Source, changed
from raystream.errors import ConfigError, InputError
from raystream.io.files.declared import batch_of_records
from raystream.io.files.listing import BATCH_ROWS
from raystream.schema.fields import AnyRecord
from raystream.schema.types import MAX_KEY_GROUPS, Split

U = TypeVar("U", bound=AnyRecord)


def _rows_of(table: object) -> str:
    """How a table of Polars, Arrow or pandas gives its rows as dicts; "" if it is none."""
    calls = "to_dicts()", "to_pylist()", 'to_dict("records")'
    return next((call for call in calls if hasattr(table, call.partition("(")[0])), "")


@dataclass(frozen=True)
class Records(Source[U]):
    """Split i of n has every nth record from the ith on."""

    records: Iterable[U] | Callable[[], Iterable[U]]
    record: type[U]
    number: int = 1

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 1 <= self.number <= MAX_KEY_GROUPS:
            raise ConfigError(
                f"iterable(splits={self.number!r:.80}): a whole number, at least 1 and at most"
                f" {MAX_KEY_GROUPS}"
            )
        if hasattr(self.records, "columns") and (rows := _rows_of(self.records)):
            raise ConfigError(
                f"iterable() was given a {type(self.records).__name__}: that is a table",
                hint=f"Pass its records, [{self.record.__name__}(**row) for row in table.{rows}],"
                " or write it to a Parquet file for rs.io.parquet, which is faster.",
            )
        if not isinstance(self.records, Iterable) and not callable(self.records):
            raise ConfigError(
                f"iterable() was given a {type(self.records).__name__}: it is not a collection",
                hint="Pass a list of records, or a function that returns an iterator over them.",
            )
        if not isinstance(self.records, Iterable):
            check_function("iterable()", self.records, "nothing", 0, lazy=True)
        if isinstance(self.records, Iterator):
            raise _read_once()
        if isinstance(self.records, set | frozenset):
            raise ConfigError(
                "iterable() was given a set: each process would read it in another order",
                hint="Pass sorted(records).",
            )

    def splits(self) -> Sequence[Split]:
        """As many as were asked for.

        Raises:
            ConfigError: the function returns the same iterator again: it can be read only
                once, and the plan looks at the first records before the job reads them.
        """
        given = self._given()
        if isinstance(given, Iterator) and given is self._given():
            raise _read_once()
        return [Split(f"{i}/{self.number}") for i in range(self.number)]

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches of `BATCH_ROWS` records.

        Raises:
            InputError: there are fewer than the position says.
        """
        first = int(split.name.partition("/")[0])
        before = first + (position - 1) * self.number if position else first
        mine = islice(self._given(), before, None, self.number)
        if position and not list(islice(mine, 1)):
            raise changed(f"split {split.name} of an iterable", position)
        while rows := list(islice(mine, BATCH_ROWS)):
            batch = batch_of_records(self.record, rows, partial(self._place, first, position))
            position += len(rows)
            yield position, batch

    def _given(self) -> Iterable[U]:
        """The records, from the first on.

        Raises:
            InputError: the function returns none.
        """
        if isinstance(self.records, Iterable):
            return self.records
        found = self.records()
        if not isinstance(found, Iterable):
            raise InputError(
                f"{named(self.records)} returned a {type(found).__name__}, which is no iterator",
                hint="iterable() takes a function that returns an iterator over records, or is a"
                " generator.",
            )
        return found

    def _place(self, first: int, position: int, n: int) -> str:
        return f"record {first + (position + n) * self.number} of an iterable"


def _read_once() -> ConfigError:
    return ConfigError(
        "An iterator can be read only once, but a source is read again when its instance is"
        " restored.",
        hint="Pass a list, or a function that returns a new iterator.",
    )
