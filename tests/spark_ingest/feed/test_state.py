"""The folder in which a feed keeps how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystream.errors import ConfigError
from spark_ingest.feed.state import Feeding, State


def test_a_feed_goes_on_in_its_own_folder_only(tmp_path: Path) -> None:
    state = State(tmp_path / "new" / "state")
    state.begin(Feeding("/data", "20"))
    state.begin(Feeding("/data", "20"))
    with pytest.raises(ConfigError, match="another feed"):
        state.begin(Feeding("/data", "60"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot keep"):
        State(tmp_path / "file").begin(Feeding("/data", "20"))


def test_how_far_it_is_is_what_spark_has_committed(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert state.committed() is None
    for name in ("commits", "offsets"):
        (state.query / name).mkdir(parents=True)
    for batch, second in ((9, 40), (10, 47), (11, 60)):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"second": {second}}}'
        (state.query / "offsets" / str(batch)).write_text(text)
    for batch in (9, 10):
        (state.query / "commits" / str(batch)).write_text("v1\n{}")
    (state.query / "commits" / ".10.crc").write_text("")
    assert state.committed() == 47
