"""The work of `python -m benchmarks kafka` in other systems.

on_bytewax  Bytewax
on_quix     Quix Streams

Those in Java are beside them: Flink and Kafka Streams.
"""
