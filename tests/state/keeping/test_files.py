"""Files of a keeper: what is damaged, torn or gone is found, and what the dead left is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from raystream.errors import StateError
from raystream.state.keeping.files import PAGE, PREFIX, Folder, placed, read_part, sweep

DATA = np.random.default_rng(1).integers(0, 255, 2 * PAGE + 100, dtype=np.uint8)


def written(tmp_path: Path) -> tuple[Folder, Path]:
    folder = Folder(tmp_path, os.getpid())
    folder.write(1, [b"before", DATA])
    (file,) = folder.path.iterdir()
    return folder, file


def test_a_part_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder, _ = written(tmp_path)
    before, part = placed(1, [b"before", DATA])
    assert bytes(read_part(folder, before)) == b"before"
    assert np.array_equal(np.asarray(read_part(folder, part)), DATA)
    folder.delete(1)
    folder.delete(1)
    with pytest.raises(StateError, match="file 1 cannot be read: No such file"):
        read_part(folder, part)


def test_a_bad_page_is_named(tmp_path: Path) -> None:
    folder, file = written(tmp_path)
    data = bytearray(file.read_bytes())
    data[6 + PAGE + 5] ^= 1
    file.write_bytes(data)
    before, part = placed(1, [b"before", DATA])
    assert bytes(read_part(folder, before)) == b"before"
    with pytest.raises(StateError, match=f"the page at {6 + PAGE} has another checksum"):
        read_part(folder, part)


def test_a_torn_file_is_found(tmp_path: Path) -> None:
    folder, file = written(tmp_path)
    os.truncate(file, 6 + PAGE)
    with pytest.raises(StateError, match=f"file 1 is torn: it ends {PAGE + 100} bytes before"):
        read_part(folder, placed(1, [b"before", DATA])[1])


def test_a_file_is_written_once(tmp_path: Path) -> None:
    folder, file = written(tmp_path)
    with pytest.raises(FileExistsError):
        folder.write(1, [b"other"])
    folder.remove()
    assert not file.exists() and not folder.path.exists()


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    died = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    dead, mine = (tmp_path / f"{PREFIX}{pid}-x" for pid in (int(died.stdout), os.getpid()))
    for left in (dead, mine):
        left.mkdir()
        (left / "00000001").write_bytes(b"x")
    sweep(tmp_path)
    assert not dead.exists() and mine.exists()
    assert Folder(tmp_path, os.getpid()).path != mine
