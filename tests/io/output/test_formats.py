"""Parts as Parquet, CSV and JSON: what is written is read again, or refused when it is written."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import (
    ConfigError,
    GraphError,
    OutputError,
)
from tests.io.kinds import PLAIN, RICH, Counted, Plain, Rich, batch
from tests.io.output.written import ALL, opened, read, rows, write


@settings(max_examples=25)
@given(st.lists(st.lists(PLAIN, min_size=1, max_size=4), min_size=2, max_size=5), st.integers(1, 4))
def test_a_commit_amid_a_chunk_keeps_every_value(
    epochs: list[list[Plain]], checkpoint: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        everything = list(chain(*epochs))
        patch.setattr("raystream.io.output.sink.CHUNK_ROWS", len(everything))
        for kind in ("parquet", "csv", "json"):
            folder = Path(name, kind)
            one = opened(getattr(rs.io, kind)(folder))
            for epoch, rows_of_epoch in enumerate(epochs, 1):
                one.write(epoch, ALL, batch(Plain, rows_of_epoch))
            one.commit(min(checkpoint, len(epochs) - 1))
            one.commit(len(epochs))
            one.close()
            assert len(rs.io.parts(folder)) == 2
            assert read(folder, Plain) == everything


@settings(max_examples=25)
@given(st.lists(RICH, min_size=2, max_size=6), st.integers(1, 5))
def test_json_keeps_nested_values_amid_a_chunk(rows_of: list[Rich], checkpoint: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr("raystream.io.output.sink.CHUNK_ROWS", len(rows_of))
        one = opened(rs.io.json(name))
        for epoch, row in enumerate(rows_of, 1):
            one.write(epoch, ALL, batch(Rich, [row]))
        one.commit(min(checkpoint, len(rows_of) - 1))
        one.commit(len(rows_of))
        one.close()
        assert len(rs.io.parts(name)) == 2
        assert read(Path(name), Rich) == rows_of


def test_other_readers_see_the_parts_alone(tmp_path: Path) -> None:
    one = opened(rs.io.parquet(tmp_path))
    write(one, 1)
    one.commit(1)
    write(one, 2)
    assert pq.read_table(tmp_path).num_rows == 3
    assert [
        r
        for b in rs.io.parquet(tmp_path, Counted).read(
            rs.io.parquet(tmp_path, Counted).splits()[0], 0
        )
        for r in b[1].records()
    ] == rows(1)


def test_csv_parts_hold_plain_values_only(tmp_path: Path) -> None:
    class Listed(NamedTuple):
        key: int
        items: list[int]

    stream = rs.Flow("listed").source(rs.io.iterable([Listed(1, [2])], Listed))
    with pytest.raises(GraphError, match=r"cannot hold Listed\.items(.|\n)*rs\.io\.parquet") as bad:
        stream.to(rs.io.csv(tmp_path))
    assert bad.value.where is not None and bad.value.where.text == "stream.to(rs.io.csv(tmp_path))"


def test_json_parts_have_keys_that_json_can_hold(tmp_path: Path) -> None:
    class Keyed(NamedTuple):
        key: int
        deep: list[dict[tuple[int, int], str]]

    stream = rs.Flow("keyed").source(rs.io.iterable([Keyed(1, [])], Keyed))
    with pytest.raises(GraphError, match=r"cannot hold Keyed\.deep(.|\n)*rs\.io\.parquet"):
        stream.to(rs.io.json(tmp_path))


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_numbers_inside_are_of_the_declared_type(kind: str, tmp_path: Path) -> None:
    """Arrow makes none of bools, nor floats of large ints."""

    class Odd(NamedTuple):
        whole: list[int]
        real: tuple[float | None, ...]
        sure: dict[str, bool]

    sink = opened(getattr(rs.io, kind)(tmp_path))
    sink.write(1, ALL, batch(Odd, [Odd([True, 2], (2**60 + 1, True, None), {"a": False})]))
    sink.commit(1)
    sink.close()
    assert repr(read(tmp_path, Odd)) == repr([Odd([1, 2], (2.0**60, 1.0, None), {"a": False})])


@pytest.mark.parametrize("header", [True, False])
def test_csv_parts_have_the_delimiter_that_was_asked_for(
    header: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Note(NamedTuple):
        time: int
        text: str
        size: float | None

    notes = [Note(-1, "a;b", 0.5), Note(2, 'say "x"\n', None), Note(3, "a,b", 1e300)]
    monkeypatch.setattr("raystream.io.output.sink.CHUNK_ROWS", len(notes))
    sink = opened(rs.io.csv(tmp_path, header=header, delimiter=";"))
    for epoch, note in enumerate(notes, 1):
        sink.write(epoch, ALL, batch(Note, [note]))
    sink.commit(1)  # amid a chunk, which is read again
    sink.commit(3)
    sink.close()
    first, *_ = rs.io.parts(tmp_path)[0].path.read_text().splitlines()
    assert first == ('"time";"text";"size"' if header else '-1;"a;b";0.5')
    assert read(tmp_path, Note, header=header, delimiter=";") == notes


def test_csv_parts_hold_no_bytes_that_are_no_text(tmp_path: Path) -> None:
    class Sealed(NamedTuple):
        data: bytes
        more: bytes | None

    sink = opened(rs.io.csv(tmp_path))
    sink.write(1, ALL, batch(Sealed, [Sealed("ü".encode(), None), Sealed(b"", b"a\xff")]))
    with pytest.raises(OutputError, match=r"cannot hold b'a\\xff' in 'more'(.|\n)*parquet"):
        sink.prepare(1)


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", '"', "e", ".", "-", "7", "é"])
def test_some_characters_cannot_stand_between_values(delimiter: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot stand between two values"):
        rs.io.csv(tmp_path, delimiter=delimiter)


def test_csv_parts_hold_no_empty_lines(tmp_path: Path) -> None:
    """Arrow writes a lone None as one, and reads none: such records were lost."""

    class Lone(NamedTuple):
        n: int | None

    stream = rs.Flow("lone").source(rs.io.iterable([Lone(1), Lone(None)], Lone))
    with pytest.raises(GraphError, match=r"cannot hold None in Lone\.n: int64(.|\n)*parquet"):
        stream.to(rs.io.csv(tmp_path))


def test_parquet_parts_hold_what_is_declared(tmp_path: Path) -> None:
    """Nobody begins a job whose sink could not write a single record."""

    class Loose(NamedTuple):
        key: int
        items: list  # type: ignore[type-arg]

    stream = rs.Flow("loose").source(rs.io.iterable([Loose(1, [2])], Loose))
    with pytest.raises(GraphError, match=r"items: list does not say what it holds") as bad:
        stream.to(rs.io.parquet(tmp_path))
    assert bad.value.where is not None and bad.value.where.text.startswith("stream.to(")
