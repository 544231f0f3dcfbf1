"""Sinks to files: what readers see is whole cuts, whatever was restarted in between."""

from __future__ import annotations

import copy
import json
import pickle
import resource
import signal
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import (
    ConfigError,
    GraphError,
    InputError,
    InternalError,
    JobError,
    OutputError,
)
from tests.io.kinds import PLAIN, RICH, Counted, Plain, Rich, batch

ALL = rs.KeyRange(0, 256)
HALVES = [rs.KeyRange(0, 128), rs.KeyRange(128, 256)]


class Other(NamedTuple):
    key: int


def opened(sink: Any, keys: rs.KeyRange = ALL, run: str = "run", committed: int = 0) -> Any:
    mine = copy.copy(sink)  # as every instance of a job does
    mine.open(rs.SinkContext(run, "counts", keys, None, 0.0, None, committed))
    return mine


def rows(epoch: int, keys: rs.KeyRange = ALL, number: int = 3) -> list[Counted]:
    return [Counted(keys.lo * 1000 + i, epoch) for i in range(number)]


def write(sink: Any, epoch: int, keys: rs.KeyRange = ALL, number: int = 3) -> None:
    sink.write(epoch, keys, batch(Counted, rows(epoch, keys, number)))


def read(folder: Path, record: type = Counted, **options: Any) -> list[Any]:
    return [r for b in rs.io.read_parts(folder, record, **options) for r in b.records()]


def visible(folder: Path) -> list[Any]:
    return read(folder, partial=True)


@pytest.fixture(params=["parquet", "csv", "json"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return getattr(rs.io, request.param)(tmp_path)


def test_nothing_is_seen_before_its_commit(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1)
    write(one, 2)
    assert visible(tmp_path) == []
    one.commit(1)
    assert visible(tmp_path) == rows(1)
    write(one, 3)
    one.commit(2)
    assert visible(tmp_path) == rows(1) + rows(2)
    with pytest.raises(JobError, match=r"not ended: .* whole up to epoch 2(.|\n)*partial=True"):
        read(tmp_path)
    one.commit(3)
    one.close()
    assert read(tmp_path) == rows(1) + rows(2) + rows(3)


def test_what_was_not_committed_does_not_end(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1)
    one.close()
    with pytest.raises(JobError, match="has not ended"):
        rs.io.parts(tmp_path)


def test_the_same_epoch_again_replaces_the_first(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1, number=9)
    write(one, 1)
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1)


def test_parts_roll_with_the_cut_and_are_named_by_it(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    for epoch in range(1, 41):
        write(one, epoch)
    one.commit(20)
    one.commit(40)
    one.close()
    found = rs.io.parts(tmp_path)
    assert [(p.record, p.after, p.upto, p.keys, p.rows) for p in found] == [
        ("Counted", 0, 20, ALL, 60),
        ("Counted", 20, 40, ALL, 60),
    ]
    names = [f"Counted/run-{a:09d}-{b:09d}-00000-00256-000" for a, b in ((0, 20), (20, 40))]
    assert [str(p.path.relative_to(tmp_path).with_suffix("")) for p in found] == names
    there = sorted((tmp_path / "Counted").iterdir())
    assert there == sorted(p.path for p in found)


def test_what_is_written_at_a_cut_does_not_grow_with_the_job(
    sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raystream.io.manifest.LIST_PARTS", 10)
    manifest, one = tmp_path / "_manifest-run-00000-00256.json", opened(sink)
    for epoch in range(1, 36):
        write(one, epoch)
        one.commit(epoch)
        if epoch == 25:
            one = opened(sink, committed=20)
        assert manifest.read_text().count("Counted/") <= 10
    assert len(visible(tmp_path)) == 3 * 35
    one.close()
    assert [p.upto for p in rs.io.parts(tmp_path)] == [*range(1, 36)]
    lists = sorted(tmp_path.glob("_list-*"))
    assert len(lists) == 3
    lists[0].unlink()
    with pytest.raises(InputError, match=r"names .*_list-run(.|\n)*begin anew"):
        rs.io.parts(tmp_path)
    opened(sink, run="anew")
    assert not sorted(tmp_path.glob("_list-*"))


def test_manifests_without_lists_are_read(sink: Any, tmp_path: Path) -> None:
    """They were written before there were any."""
    one = opened(sink)
    write(one, 1)
    one.commit(1)
    manifest = tmp_path / "_manifest-run-00000-00256.json"
    old = {**json.loads(manifest.read_text()), "format": 3}
    del old["lists"]
    manifest.write_text(json.dumps(old))
    assert visible(tmp_path) == rows(1)


def test_types_are_kept_apart(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    write(one, 1)
    one.write(1, ALL, batch(Other, [Other(7)]))
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1)
    assert read(tmp_path, Other) == [Other(7)]
    assert {p.path.parent.name for p in rs.io.parts(tmp_path)} == {"Counted", "Other"}


def test_parts_of_all_instances_come_by_epochs_then_keys(sink: Any, tmp_path: Path) -> None:
    high, low = (opened(sink, keys) for keys in reversed(HALVES))
    for epoch in (1, 2):
        for one, keys in ((high, HALVES[1]), (low, HALVES[0])):
            write(one, epoch, keys)
            one.commit(epoch)
    for one in (high, low):
        one.close()
    assert read(tmp_path) == [r for e in (1, 2) for keys in HALVES for r in rows(e, keys)]


def test_only_what_all_have_committed_is_whole(sink: Any, tmp_path: Path) -> None:
    """Commits reach instances at different times, and several may come as one."""
    low, high = (opened(sink, keys) for keys in HALVES)
    for epoch in range(1, 7):
        for one, keys in zip((low, high), HALVES, strict=True):
            write(one, epoch, keys)
    for epoch in (1, 3, 5):
        low.commit(epoch)
    assert visible(tmp_path) == []
    high.commit(3)
    three = sorted(r for e in (1, 2, 3) for keys in HALVES for r in rows(e, keys))
    assert sorted(visible(tmp_path)) == three
    high.commit(6)  # (3, 6] goes beyond what `low` has
    assert sorted(visible(tmp_path)) == three


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([HALVES[0]], r"lacks the output of the key groups \[128, 256\)"),
        ([HALVES[1]], r"lacks the output of the key groups \[0, 128\)"),
        ([ALL, HALVES[1]], r"the key groups \[128, 256\) twice"),
        ([rs.KeyRange(0, 200), rs.KeyRange(100, 256)], r"the key groups \[100, 200\) twice"),
    ],
)
def test_ranges_must_tile(ranges: list[rs.KeyRange], words: str, sink: Any, tmp_path: Path) -> None:
    for keys in ranges:
        opened(sink, keys)
    with pytest.raises(JobError, match=words):
        rs.io.parts(tmp_path, partial=True)


def test_a_flow_may_have_another_number_of_key_groups(sink: Any, tmp_path: Path) -> None:
    one = opened(sink, rs.KeyRange(0, 16))
    write(one, 1)
    one.commit(1)
    one.close()
    with pytest.raises(JobError, match=r"\[16, 256\)(.|\n)*key_groups="):
        rs.io.parts(tmp_path)
    assert read(tmp_path, key_groups=16) == rows(1)


@settings(max_examples=40)
@given(data=st.data(), chunk=st.sampled_from([1, 4, 1000]))
def test_restarts_change_nothing(data: st.DataObject, chunk: int) -> None:
    """Epochs are written and committed late; lives end at any moment and the next one begins at
    some committed cut. What is read is always the epochs up to the newest commit, once each."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr("raystream.io.rolling.CHUNK_ROWS", chunk)
        folder = Path(name)
        sink = getattr(rs.io, data.draw(st.sampled_from(["parquet", "csv", "json"])))(folder)
        one, position, committed = opened(sink), 0, 0
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from("wwwwcr")):
                case "w":
                    position += 1
                    write(one, position, number=position % 3)  # some epochs have no rows
                case "c" if position:
                    committed = max(committed, data.draw(st.integers(1, position)))
                    one.commit(committed)
                case "r":
                    position = data.draw(st.integers(0, committed))
                    one = opened(pickle.loads(pickle.dumps(sink)))
            expected = [r for e in range(1, committed + 1) for r in rows(e, number=e % 3)]
            assert visible(folder) == expected
        last = max(position, committed) + 2
        for epoch in range(position + 1, last + 1):
            write(one, epoch, number=epoch % 3)
        one.commit(last)
        one.close()
        assert read(folder) == [r for e in range(1, last + 1) for r in rows(e, number=e % 3)]
        listed = {p.path for p in rs.io.parts(folder)}
        assert set(folder.glob("*/*")) == listed, "nothing else is left"


@settings(max_examples=25)
@given(st.lists(st.lists(PLAIN, min_size=1, max_size=4), min_size=2, max_size=5), st.integers(1, 4))
def test_a_commit_amid_a_chunk_keeps_every_value(epochs: list[list[Plain]], cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        everything = list(chain(*epochs))
        patch.setattr("raystream.io.rolling.CHUNK_ROWS", len(everything))
        for kind in ("parquet", "csv", "json"):
            folder = Path(name, kind)
            one = opened(getattr(rs.io, kind)(folder))
            for epoch, rows_of_epoch in enumerate(epochs, 1):
                one.write(epoch, ALL, batch(Plain, rows_of_epoch))
            one.commit(min(cut, len(epochs) - 1))
            one.commit(len(epochs))
            one.close()
            assert len(rs.io.parts(folder)) == 2
            assert read(folder, Plain) == everything


@settings(max_examples=25)
@given(st.lists(RICH, min_size=2, max_size=6), st.integers(1, 5))
def test_json_keeps_nested_values_amid_a_chunk(rows_of: list[Rich], cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr("raystream.io.rolling.CHUNK_ROWS", len(rows_of))
        one = opened(rs.io.json(name))
        for epoch, row in enumerate(rows_of, 1):
            one.write(epoch, ALL, batch(Rich, [row]))
        one.commit(min(cut, len(rows_of) - 1))
        one.commit(len(rows_of))
        one.close()
        assert len(rs.io.parts(name)) == 2
        assert read(Path(name), Rich) == rows_of


def test_a_new_run_replaces_what_was_there(sink: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("mine")
    for keys in HALVES:
        one = opened(sink, keys, run="first")
        write(one, 1, keys)
        one.commit(1)
        write(one, 2, keys)
        one.close()
    one = opened(sink, run="second")
    write(one, 1, number=1)
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1, number=1)
    assert (tmp_path / "notes.md").read_text() == "mine"


def test_the_same_run_name_again_is_a_new_run_once_it_has_ended(sink: Any, tmp_path: Path) -> None:
    for number, ranges in ((5, [ALL]), (2, HALVES)):
        for keys in ranges:
            one = opened(sink, keys)
            write(one, 1, keys, number)
            one.commit(1)
            one.close()
    assert read(tmp_path) == [r for keys in HALVES for r in rows(1, keys, 2)]


def test_an_instance_that_dies_after_it_closed_is_replaced_by_one_that_keeps_its_output(
    sink: Any, tmp_path: Path
) -> None:
    one = opened(sink)
    write(one, 1)
    one.commit(1)
    one.close()
    two = opened(sink, committed=1)
    two.close()
    assert read(tmp_path) == rows(1)


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


def test_sinks_say_of_which_kind_they_are(tmp_path: Path) -> None:
    assert rs.io.parquet(tmp_path).kind == rs.io.csv(tmp_path).kind == "epoch-addressed"
    assert rs.io.callable(print).kind == rs.io.console().kind == "at-least-once"


def test_folders_that_cannot_be(sink: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        why = f"cannot write to .*{name}: (File exists|Not a directory)"
        with pytest.raises(ConfigError, match=why):
            opened(type(sink)(tmp_path / name, sink.form))


def test_writes_that_fail_say_where_and_why(sink: Any, tmp_path: Path) -> None:
    one = opened(sink)
    (tmp_path / "Counted").write_text("")
    with pytest.raises(OutputError, match=r"Counted cannot be written: File exists"):
        write(one, 1)
    (tmp_path / "Counted").unlink()
    write(one, 1)
    (tmp_path / "Counted").rmdir()
    with pytest.raises(OutputError, match=r"Counted.* cannot be written: No such(.|\n)*is whole"):
        one.commit(1)


def test_a_full_disk(sink: Any, tmp_path: Path) -> None:
    """The limit on the size of files stands in for the disk. (Never a device such as /dev/full:
    a write that fails removes what it was writing.)"""
    one = opened(sink)
    write(one, 1, number=50_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"Counted.* cannot be written: File too large"):
            one.commit(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert visible(tmp_path) == []
    one.commit(1)
    assert len(visible(tmp_path)) == 50_000


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
    monkeypatch.setattr("raystream.io.rolling.CHUNK_ROWS", len(notes))
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


def test_folders_without_output(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no output"):
        rs.io.parts(tmp_path)
    one = opened(rs.io.csv(tmp_path))
    one.commit(1)
    manifest = next(tmp_path.glob("_manifest*"))
    manifest.write_text(manifest.read_text()[:-5])
    with pytest.raises(InputError, match=r"_manifest.* is damaged(.|\n)*begin anew"):
        rs.io.parts(tmp_path)
    manifest.write_text('{"format": 9}')
    with pytest.raises(InputError, match=r"is of format 9(.|\n)*the version of raystream"):
        rs.io.parts(tmp_path)


def test_a_run_begins_anew_where_a_manifest_cannot_be_read(sink: Any, tmp_path: Path) -> None:
    for keys in HALVES:
        one = opened(sink, keys, run="first")
        write(one, 1, keys)
        one.commit(1)
    for manifest, text in zip(tmp_path.glob("_manifest*"), ("", '{"format": 9}'), strict=True):
        manifest.write_text(text)
    with pytest.raises(InputError, match=r"damaged|format 9"):
        opened(sink, run="second", committed=1)
    one = opened(sink, run="second")
    write(one, 1, number=1)
    one.commit(1)
    one.close()
    assert read(tmp_path) == rows(1, number=1)
    listed = {p.path for p in rs.io.parts(tmp_path)}
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == {
        *listed,
        tmp_path / "_manifest-second-00000-00256.json",
    }


def test_what_was_not_written_whole_goes_with_its_range(
    sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(BaseException):
        """As with SIGKILL: nothing is done after it."""

    def die(*_: Any) -> None:
        raise DiedError

    one, other = (opened(sink, keys) for keys in HALVES)
    other.commit(1)
    for name in ("os.replace", "os.unlink"):
        monkeypatch.setattr(f"raystream.io.manifest.{name}", die)
    for each in (one, other):
        with pytest.raises(DiedError):
            each.commit(2)
    monkeypatch.undo()
    opened(sink, HALVES[0])
    (left,) = (p.name for p in tmp_path.iterdir() if p.suffix == ".tmp")
    assert "00128-00256" in left, "its writer may be at work"


def test_a_sink_is_opened_first(sink: Any) -> None:
    with pytest.raises(InternalError, match="before it was opened"):
        sink.commit(1)
