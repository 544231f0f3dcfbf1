"""Fixtures that tests of several areas share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent


ALONE = ("ray", "spark")
"""What all tests that start it share one worker for, so that there is one of it."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """With several workers: which tests go together."""
    kinds = [kind for kind in ALONE if item.get_closest_marker(kind)]
    if kinds:
        item.add_marker(pytest.mark.xdist_group(kinds[0]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Ray come first, for they take longest; they mostly wait, and leave a processor to
    the others."""
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small Spark for all tests that need one: starting it takes seconds."""
    from spark_ingest.session import spark_session

    with spark_session("tests", cores=2, options={"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


@pytest.fixture(scope="session")
def slices() -> Path:
    """The folder of slices of the official Linear Road data; tests that need it skip without.

    The data may not be redistributed, so it is no part of this repository.
    """
    folder = Path(os.environ.get("RAYSTREAM_LRB_SLICES", ROOT.parent / "shared" / "lrb"))
    if not folder.is_dir():
        pytest.skip(f"no Linear Road slices in {folder} (RAYSTREAM_LRB_SLICES says where)")
    return folder
