"""Kafka: a server for tests and benchmarks, and how long a record takes from one topic to another.

server    one node, on this machine
latency   from produce to a committed read, at a pace
throughput
          the same at full speed, JSON and Avro
strikes   the broker and processes of the job die meanwhile
produce   records at a pace, from a process of its own
others    other systems that do the same
peers     their programs
"""
