"""Kafka: a server for tests and benchmarks, and how long a record takes from one topic to another.

server    one node, on this machine
latency   from produce to a committed read, at a pace
produce   records at a pace, from a process of its own
others    other systems that do the same
peers     their programs
"""
