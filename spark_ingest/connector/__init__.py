"""The data source `raystream` of Spark: what a query writes becomes input of a running job, and
what the file sink of a job has committed is read.

from spark_ingest.connector import register

register(spark)
df.writeStream.format("raystream").option("address", "http://HOST:7700")...
spark.readStream.format("raystream").load("/data/counts")

source    the data source, by which Spark finds the others
target    the options of a writer: where the job is, the name of the query, the lanes of rows
output    reads what a file sink has committed
writing   stages what tasks write, and seals what Spark commits
"""

from __future__ import annotations

from spark_ingest.connector.source import Raystream, register

__all__ = ["Raystream", "register"]
