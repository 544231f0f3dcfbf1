"""Links in the place of files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raystream.errors import InputError
from raystream.io.files.listing import InputWarning
from tests.io.test_found_files import Timed, Write, formats, read


@formats
def test_links_are_followed_and_folders_read_once(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    for name in ("data", "disk"):
        (tmp_path / name).mkdir()
    write([{"time": 1}], tmp_path / "data" / f"1.{suffix}")
    write([{"time": 2}], tmp_path / "disk" / f"2.{suffix}")
    (tmp_path / "data" / "disk").symlink_to(tmp_path / "disk")
    (tmp_path / "data" / "disk too").symlink_to(tmp_path / "disk")
    (tmp_path / "data" / "round").symlink_to(tmp_path / "data")
    assert sorted(r.time for r in read(reader(tmp_path / "data", Timed))) == [1, 2]
    (tmp_path / "data" / f"3.{suffix}").symlink_to("gone")
    with pytest.raises(InputError, match=r"3.* is a link to gone, which is not there"):
        reader(tmp_path / "data", Timed).splits()


@formats
def test_a_file_and_a_link_to_it_are_read_once(
    reader: Any, write: Write, suffix: str, tmp_path: Path
) -> None:
    for folder, n in (("data", 1), ("data", 2), ("disk", 3)):
        (tmp_path / folder).mkdir(exist_ok=True)
        write([{"time": n}], tmp_path / folder / f"{n}.{suffix}")
    for name, to in {"latest": "2", "0": "1", "x": "../disk/3", "y": "../disk/3"}.items():
        (tmp_path / "data" / f"{name}.{suffix}").symlink_to(f"{to}.{suffix}")
    with pytest.warns(InputWarning, match=r"3 of the files .*read once:(.|\n)*0\..*is a link to"):
        splits = reader(tmp_path / "data", Timed).splits()
    assert [Path(s.name).stem for s in splits] == ["1", "2", "x"]
