"""Linear Road for the simulator: a little wild traffic, in epochs of 45 seconds.

python -m raystream.simulation --flow tests.lrb.simulated:linear_road
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import raystream as rs
from lrb.query.flow import build
from lrb.query.records import Row
from lrb.query.source import Prepared, PreparedRows, look_through
from raystream.testing import Collect
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import write_prepared


class Remembered(PreparedRows):
    """Rows whose files are read once, not in every schedule."""

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Row]]]:
        return iter(_read(self, split, position))


@cache
def _read(
    rows: Remembered, split: rs.Split, position: int
) -> tuple[tuple[int, rs.Batch[Row]], ...]:
    return tuple(PreparedRows.read(rows, split, position))


@cache
def _prepared() -> Prepared:
    folder = Path(tempfile.mkdtemp(prefix="raystream-simulated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows, history = random_traffic(seed=1, roads=2, cars=15)
    prepared = look_through(write_prepared(folder / "data", rows, history))
    return replace(prepared, rows=Remembered(prepared.rows.parts))


def linear_road(sink: Collect) -> rs.Flow:
    return build(_prepared(), sink, speed=None, epoch=45)
