"""Prepares Linear Road input with Spark: generated traffic, or the published files.

`generate` and `prepare` write one layout (`spark_ingest.layout`), which is all that a reader needs
to know; reading it needs no Spark.
"""
