"""The data source `raystream`, by which Spark finds its writers."""

from __future__ import annotations

import uuid

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceWriter
from pyspark.sql.types import StructType

from raystream.errors import ConfigError
from spark_ingest.connector.target import query_of, target
from spark_ingest.connector.writing import BatchWriter, StreamWriter


class Raystream(DataSource):
    """Writes to a running job whose source is `rs.io.push`."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` names."""
        return "raystream"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a batch of a streaming query."""
        return StreamWriter(target(self.options, query_of(self.options)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of `df.write`, which names itself by its option `name`."""
        if overwrite:
            raise ConfigError(
                'raystream: what a job has taken cannot be replaced: .mode("append")',
            )
        name = self.options.get("name") or uuid.uuid4().hex
        return BatchWriter(target(self.options, f"write:{name}"))


def register(spark: SparkSession) -> None:
    """Make the format `raystream` known to a session."""
    spark.dataSource.register(Raystream)
