"""Tables of a lake: sinks with a snapshot for each checkpoint, which one instance makes; a source.

staging   what instances have staged, and which of it goes into the next snapshot: without files
sink      the sink: rows become files at checkpoints, and files a snapshot when those are committed
delta     tables of Delta Lake
iceberg   tables of Apache Iceberg
iceberg_source
          their rows as a source: what is there, and what snapshots append
making    what users call
"""
