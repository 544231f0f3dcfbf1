"""Folders that cannot be written or read, full disks, and parts that were not written whole."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.errors import (
    ConfigError,
    InputError,
    OutputError,
)
from tests.io.output.written import HALVES, opened, read, rows, visible, write


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


def test_folders_without_output(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no output"):
        rs.io.parts(tmp_path)
    one = opened(rs.io.csv(tmp_path))
    one.commit(1)
    manifest = next(tmp_path.glob("_manifest*"))
    manifest.write_text(manifest.read_text()[:-5])
    with pytest.raises(InputError, match=r"_manifest.* is damaged(.|\n)*begin at the beginning"):
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
        monkeypatch.setattr(f"raystream.io.output.manifest.{name}", die)
    for each in (one, other):
        with pytest.raises(DiedError):
            each.commit(2)
    monkeypatch.undo()
    opened(sink, HALVES[0])
    (left,) = (p.name for p in tmp_path.iterdir() if p.suffix == ".tmp")
    assert "00128-00256" in left, "its writer may be at work"
