from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_ingest.summary import Summary
from tests.spark_ingest.data import SECONDS, SEED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def generated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """Ten minutes of one expressway."""
    from spark_ingest.generate import generate

    out = tmp_path_factory.mktemp("generated")
    return generate(out, xways=1, seconds=SECONDS, seed=SEED, spark=spark)
