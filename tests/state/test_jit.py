"""What is kept of jitted functions while many processes compile them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import IndexDataCacheFile

from raystream.state import image_kernels, kernels, row_kernels, text_kernels
from raystream.state.jit import keep_apart


@pytest.mark.parametrize("apart", [False, True])
def test_two_processes_that_keep_code_at_once_do_not_mix_it_up(
    tmp_path: Path, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found nothing; the second keeps its code just before the first writes its own. Numba by
    itself mixes up: if it does not any more, we need none of this."""
    first, second, later = (IndexDataCacheFile(str(tmp_path), "f", 1) for _ in range(3))
    if apart:
        keep_apart(first)
        keep_apart(second)
    write: Any = first._save_data

    def write_late(name: str, data: Any) -> None:
        second.save("floats", "code of floats")
        write(name, data)

    monkeypatch.setattr(second, "_load_index", dict)
    monkeypatch.setattr(first, "_save_data", write_late)
    first.save("ints", "code of ints")
    assert later.load("floats") == ("code of floats" if apart else "code of ints")
    assert later.load("ints") in (None, "code of ints")


@pytest.mark.parametrize("apart", [False, True])
def test_older_code_is_not_taken_for_newer_that_is_being_written(
    tmp_path: Path, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer, reader = (IndexDataCacheFile(str(tmp_path), "f", stamp) for stamp in (1, 2, 2))
    if apart:
        keep_apart(older)
        keep_apart(newer)
    write: Any = newer._save_data
    read = []

    def read_first(name: str, data: Any) -> None:
        read.append(reader.load("ints"))
        write(name, data)

    monkeypatch.setattr(newer, "_save_data", read_first)
    older.save("ints", "older code")
    newer.save("ints", "newer code")
    assert read == [None if apart else "older code"]
    assert reader.load("ints") == "newer code"


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    one, other = (IndexDataCacheFile(str(tmp_path), "f", 1) for _ in range(2))
    keep_apart(one)
    for key in ("ints", "floats", "ints"):
        one.save(key, f"code of {key}")
    assert [other.load(key) for key in ("ints", "floats")] == ["code of ints", "code of floats"]
    assert len([*tmp_path.glob("*.nbc")]) == 2


def test_all_that_is_kept_is_kept_apart() -> None:
    files = [
        function._cache._cache_file
        for module in (image_kernels, kernels, row_kernels, text_kernels)
        for function in vars(module).values()
        if hasattr(getattr(function, "_cache", None), "_cache_file")
    ]
    assert len(files) > 20
    assert all(isinstance(file.save, partial) for file in files)
