"""Sinks to files of each format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raystream as rs


@pytest.fixture(params=["parquet", "csv", "json"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return getattr(rs.io, request.param)(tmp_path)
