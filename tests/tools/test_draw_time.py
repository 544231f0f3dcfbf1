"""The picture of the guide's chapter on time shows what happens when its job runs."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import draw_time  # noqa: E402


def test_the_picture_is_of_a_run() -> None:
    happened = draw_time.what_happens()
    assert [(epoch, *told) for epoch, told in happened] == [
        (5, "closes", 0, 4),
        (8, "late", 7, 0),
        (9, "rings", 16, 0),
        (10, "closes", 10, 3),
        (12, "closes", 20, 3),
    ]
    marks = draw_time.watermarks()
    assert marks[3] < 10 <= marks[4] and marks[7] < 16 <= marks[8] and marks[8] < 20 <= marks[9]
    assert draw_time.picture().startswith(b"\x89PNG")
