"""Sinks to tables of a lake: one snapshot for each checkpoint, made by one instance for all.

staging   what instances have staged, and which of it goes into the next snapshot: without files
sink      the sink: rows become files at checkpoints, and files a snapshot when those are committed
delta     tables of Delta Lake
iceberg   tables of Apache Iceberg
making    what users call
"""
