"""The data source `raystream`, by which Spark finds its readers and writers."""

from __future__ import annotations

import uuid

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from raystream.errors import ConfigError
from spark_ingest.connector.output import OutputStream, OutputTable, output
from spark_ingest.connector.target import query_of, target
from spark_ingest.connector.writing import BatchWriter, StreamWriter


class Raystream(DataSource):
    """Writes to a running job whose source is `rs.io.push`; reads what the file sink of a job has
    committed."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` names."""
        return "raystream"

    def schema(self) -> StructType:
        """The columns of the output that is read, where they are not said."""
        return output(self.options).schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of `spark.readStream`."""
        return OutputStream(output(self.options), schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of `spark.read`."""
        return OutputTable(output(self.options), schema)

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
