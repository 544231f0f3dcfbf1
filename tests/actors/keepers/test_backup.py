"""The images of a keeper with a store that is a dict and files that are files."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raystream.actors.keepers import backup as backups
from raystream.actors.keepers.backup import Backup
from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Stored
from raystream.state.keeping.files import Folder
from raystream.state.keeping.holdings import FILE_BYTES

ALL = KeyRange(0, 16)
SIZE, BUDGET = FILE_BYTES // 2, 2 * FILE_BYTES
LIMIT_SECONDS = 60.0


class Disk(Folder):
    """A folder that may be full."""

    full = False

    def write(self, file: int, parts: Any) -> None:
        if self.full:
            raise OSError(28, "No space left on device", str(self.path))
        super().write(file, parts)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path, os.getpid())


@pytest.fixture
def backup(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backup]:
    monkeypatch.setattr(backups, "AGAIN_SECONDS", 0.01)
    made = Backup(BUDGET, lambda: disk, lambda data: data, lambda data: data)
    yield made
    made.stop()


def send(backup: Backup, checkpoint: int, *, vertex: int = 1) -> bool:
    data = np.full(SIZE, checkpoint, np.uint8)
    return backup.store(vertex, ALL, ALL, Stored(checkpoint, None, data, SIZE, sender="a"))


def until(condition: Any) -> None:
    waiting = threading.Event()
    for _ in range(int(LIMIT_SECONDS / 0.01)):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come about")


def number_of(backup: Backup, vertex: int) -> int:
    ((_, (image,)),) = backup.chains(vertex, vertex, ALL)
    return image.data[0].number


def test_memory_is_bounded_and_all_is_read_again(backup: Backup, disk: Disk) -> None:
    for vertex in range(1, 21):
        assert send(backup, vertex, vertex=vertex)
        assert backup.use().memory < BUDGET + SIZE
    until(lambda: backup.use().memory < BUDGET)
    use = backup.use()
    assert use.disk >= 16 * SIZE and not use.why
    for vertex in range(1, 21):
        data = backup.read(number_of(backup, vertex))
        assert data is not None and len(data) == SIZE and (np.asarray(data) == vertex).all()
    left = backup.trim(20, {(20, ALL)})
    assert left == SIZE and backup.read(1) is None
    until(lambda: len([*disk.path.iterdir()]) <= 1)


def test_a_damaged_file_is_said_and_its_image_is_not_held_any_more(
    backup: Backup, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    for vertex in range(1, 9):
        send(backup, vertex, vertex=vertex)
    first = number_of(backup, 1)
    until(lambda: backup.chains(1, 1, ALL)[0][1][0].data[0].data is None)
    file = min(disk.path.iterdir())
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(data)
    with caplog.at_level(logging.WARNING, "raystream.keeper"):
        assert backup.read(first) is None
    assert "another copy is used: file 1 is damaged" in caplog.text
    assert "vertex 1 [0, 16) at checkpoint 1" in caplog.text
    assert not backup.chains(1, 1, ALL) and backup.chains(2, 2, ALL)


def test_a_full_disk_is_said_and_one_that_has_room_again_goes_on(
    backup: Backup, disk: Disk
) -> None:
    disk.full = True
    sent = (send(backup, vertex, vertex=vertex) for vertex in range(1, 100))
    with pytest.raises(StateError, match=r"its files cannot be written: .*No space left on device"):
        all(sent)
    assert BUDGET <= backup.use().memory < BUDGET + SIZE
    assert "No space left" in backup.use().why
    assert backup.read(number_of(backup, 1)) is not None, "what is held is held"
    disk.full = False
    until(lambda: not backup.use().why)
    assert send(backup, 50, vertex=50)
