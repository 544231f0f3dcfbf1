"""A server on this machine that speaks like S3, and stores of both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from raystream.durable.store import Store, open_store
from tests.s3_server import s3 as s3
from tests.s3_server import s3_server as s3_server


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "folder":
        return open_store(tmp_path / "store")
    request.getfixturevalue("s3")
    return open_store("s3://bucket/some/prefix")
