"""The data source `raystream` of Spark: what a query writes becomes input of a running job.

from spark_ingest.connector import register

register(spark)
df.writeStream.format("raystream").option("address", "http://HOST:7700")...

source    the data source, by which Spark finds the others
target    the options of a writer: where the job is, the name of the query, the lanes of rows
writing   stages what tasks write, and seals what Spark commits
"""

from __future__ import annotations

from spark_ingest.connector.source import Raystream, register

__all__ = ["Raystream", "register"]
