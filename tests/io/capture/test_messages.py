"""What the server sends becomes rows, and its texts become values: without a server."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import InputError
from raystream.io.capture import changes
from raystream.io.capture.changes import LOG, Part, Row, Transactions, WatchedTable
from raystream.io.capture.pgoutput import (
    UNCHANGED,
    Change,
    Relation,
    Truncate,
    lsn_of,
    lsn_text,
    parsed,
)
from raystream.io.capture.pgoutput import BeginMessage as begin
from raystream.io.capture.pgoutput import CommitMessage as commit
from raystream.io.capture.values import RowDecoder, ToldFields, array_of, seconds_of
from tests.examples import examples

TABLE = WatchedTable(16384, "public.t", ("id", "name", "big"), ("id",))
RELATION = Relation(16384, "public.t", ("id", "name", "big"), (True, False, False))


def test_messages_as_a_server_of_version_15_sends_them() -> None:
    relation = (
        b"R\x00\x00@\x01public\x00t\x00d\x00\x03\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff\x00name"
        b"\x00\x00\x00\x00\x19\xff\xff\xff\xff\x00big\x00\x00\x00\x00\x19\xff\xff\xff\xff"
    )
    assert parsed(relation) == RELATION._replace(id=0x4001)
    began = b"B\x00\x00\x00\x00\x01R\xb1(\x00\x03\x04a\x0e\x89\xbb\xea\x00\x00\x02\xd7"
    assert parsed(began) == begin(0x152B128, 1_795_924_632_378_346)
    places = b"\0\0\0\0\x01R\xb1(\0\0\0\0\x01R\xb1X"
    assert parsed(b"C\0" + places + b"\0" * 8) == commit(0x152B128, 0x152B158)
    insert = b"I\x00\x00@\x01N\x00\x03t\x00\x00\x00\x011t\x00\x00\x00\x01an"
    assert parsed(insert) == Change("I", 0x4001, None, False, (b"1", b"a", None))
    update = b"U\x00\x00@\x01K\x00\x01t\x00\x00\x00\x011N\x00\x02t\x00\x00\x00\x012u"
    assert parsed(update) == Change("U", 0x4001, (b"1",), False, (b"2", UNCHANGED))
    assert parsed(b"T" + struct.pack("!IBII", 2, 0, 1, 2)) == Truncate((1, 2))
    assert parsed(b"Mwhatever") is None
    for bad in (b"Q", b"B\0", b"I\0\0\0\1N\0\3t\0"):
        with pytest.raises(InputError, match="none"):
            parsed(bad)
    assert lsn_text(lsn_of("A/152AF60")) == "A/152AF60"


def taken(*messages: Any, table: WatchedTable = TABLE) -> list[Part]:
    machine = Transactions(table, ("name", "id"))
    found = [part for m in (RELATION, *messages) for part in machine.take(m)]
    return found + machine.flush()


def test_rows_of_a_transaction_have_its_commit_for_a_sequence() -> None:
    (part,) = taken(
        begin(7, 5), Change("I", 16384, None, False, (b"1", b"a", None)),
        Change("D", 16384, (b"1", None, None), False, None), commit(7, 8),
        begin(9, 6), Change("I", 999, None, False, (b"other",)), Truncate((16384,)), commit(9, 10),
    )  # fmt: skip
    assert (part.sender, part.sequences.tolist()) == (LOG, [7, 7, 9])
    assert part.rows == [
        Row("insert", (b"a", b"1"), 7, 1, 5),
        Row("delete", (None, b"1"), 7, 2, 5),
        Row("truncate", (None, None), 9, 1, 6),
    ]


@pytest.mark.parametrize("whole", [False, True])
def test_an_update_of_the_key_is_a_delete_and_an_insert(whole: bool) -> None:
    old = (b"1", b"a" if whole else None, b"x" if whole else None)
    (part,) = taken(
        begin(7, 0),
        Change("U", 16384, old, whole, (b"2", UNCHANGED, UNCHANGED)),
        commit(7, 8),
    )
    name = b"a" if whole else UNCHANGED
    assert [r[:2] for r in part.rows] == [("delete", (old[1], b"1")), ("insert", (name, b"2"))]


def test_a_column_that_is_gone_ends_the_job_and_a_new_one_is_told() -> None:
    machine = Transactions(TABLE, ("id", "name"))
    machine.take(
        RELATION._replace(columns=("id", "name", "added", "big"), keys=(True,) + (False,) * 3)
    )
    assert machine.added == {"added"}
    with pytest.raises(InputError, match=r"no column 'name' any more; it has got title"):
        machine.take(RELATION._replace(columns=("id", "title"), keys=(True, False)))
    with pytest.raises(InputError, match="dropped and made again"):
        machine.take(RELATION._replace(id=5))


@examples(100)
@given(st.lists(st.integers(0, 9), max_size=8), st.data())
def test_large_transactions_come_in_parts_whose_rows_are_numbered(
    sizes: list[int], data: st.DataObject
) -> None:
    """However the log is flushed, the rows that a reader leaves out are those that it has."""
    machine, parts = Transactions(TABLE, ("id",)), list[Part]()
    machine.take(RELATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "ROWS_MOST", 3)
        for n, size in enumerate(sizes, 1):
            parts += machine.take(begin(n * 10, 0))
            for i in range(size):
                row = (b"%d.%d" % (n, i), None, None)
                parts += machine.take(Change("I", 16384, None, False, row))
            parts += machine.take(commit(n * 10, n * 10 + 1))
            if data.draw(st.booleans()):
                parts += machine.flush()
    parts += machine.flush()
    rows = [row.values[0] for part in parts for row in part.rows]
    assert rows == [b"%d.%d" % (n, i) for n, size in enumerate(sizes, 1) for i in range(size)]
    known: dict[str, int] = {}
    for part in parts:
        assert np.all(np.diff(part.sequences) >= 0)
        assert part.sequences[0] > known.get(part.sender, -1)
        known[part.sender] = int(part.sequences[-1])


class Everything(NamedTuple):
    op: str
    id: UUID
    at: datetime
    day: date
    took: timedelta
    price: Annotated[Decimal, rs.decimal(12, 2)]
    ok: bool
    small: rs.Int16
    ratio: float
    raw: bytes
    tags: list[str]
    grid: list[list[int]]
    extra: dict[str, int]
    note: str | None
    when: datetime


def test_values_of_every_kind() -> None:
    told = ToldFields(operation="op", committed="when")
    columns = [n for n in Everything._fields if n not in ("op", "when")]
    decoder = RowDecoder(Everything, told, columns, "public.t")
    texts = (
        b"00000000-0000-0000-0000-000000000005", b"2024-02-03 05:05:06.000007+01", b"2024-02-03",
        b"P-1DT0.000005S", b"-12.50", b"t", b"-3", b"NaN", b"\\x00ff", b'{x,"a \\"b",NULL_}',
        b"{{1,2},{3,4}}", b'{"a": 1}', None,
    )  # fmt: skip
    (found,) = decoder.batch([Row("insert", texts, 1, 1, 1_000_000)]).records()
    assert found.ratio != found.ratio
    assert found._replace(ratio=0.0) == Everything(
        "insert", UUID(int=5), datetime(2024, 2, 3, 4, 5, 6, 7, UTC), date(2024, 2, 3),
        timedelta(days=-1, microseconds=5), Decimal("-12.50"), True, -3, 0.0, b"\0\xff",
        ["x", 'a "b', "NULL_"], [[1, 2], [3, 4]], {"a": 1}, None,
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    )  # fmt: skip
    wrong = [texts[:6] + (b"40000",) + texts[7:], texts[:3] + (b"P1M",) + texts[4:]]
    for values, said in zip(wrong, ("'small' is 40000", "'took' is 'P1M'"), strict=True):
        with pytest.raises(InputError, match=f"public.t, update of the commit at FF: {said}"):
            decoder.batch([Row("update", values, 255, 1, 0)])


class Named(NamedTuple):
    op: str
    name: str | None
    missing: list[str]
    n: int


def test_what_is_stored_apart_and_unchanged_is_told_or_refused() -> None:
    row = Row("update", (UNCHANGED, b"1"), 1, 1, 0)
    told = ToldFields(operation="op", unchanged="missing")
    found = RowDecoder(Named, told, ("title", "n"), "t").batch([row])
    assert list(found.records()) == [Named("update", None, ["title"], 1)]

    class Plain(NamedTuple):
        name: str | None
        n: int

    with pytest.raises(InputError, match=r"'title' is stored apart \(TOAST\)"):
        RowDecoder(Plain, ToldFields(), ("title", "n"), "t").batch([row])
    with pytest.raises(InputError, match="'n' is missing, and Plain does not say that it may be"):
        RowDecoder(Plain, ToldFields(), ("title", "n"), "t").batch([Row("delete", (b"a", None))])


def test_arrays_and_intervals() -> None:
    assert array_of("{}") == []
    assert array_of('{NULL,"NULL",a b,"c,{}"}') == [None, "NULL", "a b", "c,{}"]
    for bad in ("", "a", "{", "{a}}", "{a},{b}"):
        with pytest.raises(ValueError, match="no array"):
            array_of(bad)
    assert seconds_of("PT-1M-0.5S") == "-60.500000"
    assert seconds_of("P1W1DT2H3M4S") == f"{8 * 86400 + 7384}.000000"
    assert seconds_of("P1Y") == "P1Y"
