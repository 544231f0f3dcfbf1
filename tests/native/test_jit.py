"""What is kept of jitted functions while many processes compile them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import IndexDataCacheFile

from raystream.native.jit import keep_apart
from raystream.state import kernels
from raystream.state.images import image_kernels
from raystream.state.tables import loop_kernels, row_kernels, text_kernels
from tests.gates import LIMIT_SECONDS


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


PACKAGE = Path(image_kernels.__file__).parents[2]
RUNS = """
import numpy as np
from raystream.state import kernels
ends, epochs = kernels.epoch_runs(np.arange(9), 0, 3, 0)
assert (ends.tolist(), epochs.tolist()) == ([3, 6, 9], [1, 2, 3])
stats = kernels._runs.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
NO_HOME = """
import os, pwd
for name in ("HOME", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
def unknown(user):
    raise KeyError(user)
pwd.getpwuid = unknown
"""
COMPILED, LOADED = "0 1", "1 0"


def test_one_process_compiles_and_others_and_copies_load(tmp_path: Path) -> None:
    def start(where: Path) -> subprocess.Popen[str]:
        paths = os.pathsep.join([str(where), *sys.path])
        env = {**os.environ, "RAYSTREAM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": paths}
        return subprocess.Popen(
            [sys.executable, "-c", RUNS], env=env, cwd=where, text=True, stdout=subprocess.PIPE
        )

    def said(process: subprocess.Popen[str]) -> str:
        return process.communicate(timeout=LIMIT_SECONDS)[0].strip()

    together = [start(PACKAGE.parent) for _ in range(3)]
    assert sorted(map(said, together)) == [COMPILED, LOADED, LOADED]
    copy = tmp_path / "raystream"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert said(start(tmp_path)) == LOADED
    with (copy / "state" / "tables" / "row_kernels.py").open("a") as file:
        file.write("# another version\n")
    assert said(start(tmp_path)) == COMPILED


@pytest.mark.parametrize("where", ["a file", "no home"])
def test_where_no_folder_can_be_made_everybody_compiles(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    env = {**os.environ, "RAYSTREAM_CACHE": str(tmp_path / "file") if where == "a file" else ""}
    line = [sys.executable, "-c", RUNS if where == "a file" else NO_HOME + RUNS]
    done = subprocess.run(
        line, env=env, cwd=PACKAGE.parent, text=True, capture_output=True, check=False
    )
    assert done.stdout.strip() == COMPILED, done.stderr


def test_all_that_is_kept_is_kept_apart() -> None:
    files = [
        function._cache._cache_file
        for module in (image_kernels, kernels, loop_kernels, row_kernels, text_kernels)
        for function in vars(module).values()
        if hasattr(getattr(function, "_cache", None), "_cache_file")
    ]
    assert len(files) > 20
    assert all(isinstance(file.save, partial) for file in files)
