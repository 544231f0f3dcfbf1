"""Fixtures that tests of several areas share."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import raystream.actors  # noqa: F401  before Ray: it says what Ray is not to print
from tests.registry_server import RegistryServer
from tests.servers import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_server import Kafka

ROOT = Path(__file__).resolve().parent.parent

# Read when the stand-in for AWS is imported first, which may be for a bucket.
os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")


@pytest.fixture(autouse=True, scope="module")
def _nothing_stays_frozen() -> Iterator[None]:
    """A run in this process asks how many objects are frozen, and Python counts them. After a test
    that leaves the heap frozen each run would count all of it."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small Spark for all tests that need one: starting it takes seconds."""
    from spark_ingest.spark.session import spark_session

    with spark_session("tests", cores=2, options={"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A real Kafka, begun by the first test that needs one."""
    from tests.kafka_server import Kafka

    server = Kafka()
    yield server
    server.remove()


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """A schema registry without schemas."""
    made = RegistryServer()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for all tests that leave it running."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = Postgres()
    yield found
    found.remove()


@pytest.fixture(scope="module")
def runtime() -> Iterator[None]:
    """The Ray that other tests have started, or one of its own; runs join it."""
    import ray

    from raystream.actors.cluster.connecting import start_ray

    if ray.is_initialized():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.delenv("RAY_ADDRESS", raising=False)
        start_ray(num_cpus=4, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="session")
def slices_found() -> Path | None:
    """The folder of slices of the official Linear Road data, where there is one.

    The data may not be redistributed, so it is no part of this repository.
    """
    folder = Path(os.environ.get("RAYSTREAM_LRB_SLICES", ROOT.parent / "shared" / "lrb"))
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def slices(slices_found: Path | None) -> Path:
    """The same; tests that need it skip without."""
    if slices_found is None:
        pytest.skip("no Linear Road slices (RAYSTREAM_LRB_SLICES says where they are)")
    return slices_found
