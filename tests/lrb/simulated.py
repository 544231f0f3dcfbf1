"""Linear Road for the simulator: a little wild traffic, in epochs of 45 seconds.

python -m raystream.testing.simulator --flow tests.lrb.simulated:linear_road
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import raystream as rs
from lrb.flow import build
from lrb.source import Prepared, look_through
from raystream.testing import Collect
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import write_prepared


@cache
def _prepared() -> Prepared:
    folder = Path(tempfile.mkdtemp(prefix="raystream-simulated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows, history = random_traffic(seed=1, roads=2, cars=15)
    return look_through(write_prepared(folder / "data", rows, history))


def linear_road(sink: Collect) -> rs.Flow:
    return build(_prepared(), sink, speed=None, epoch=45)
