"""Kafka, through confluent-kafka: a source that keeps its own positions, and sinks.

    making      what users call
    settings    the settings of clients: what is set, what users may set, what is secret
    client      clients, and their errors in words
    partitions  where partitions begin and end, and which positions stand for their offsets
    reading     a partition: its messages from an offset on
    layout      which part of a message holds which field
    messages    messages as records
    source      the source

Nothing here is imported before a flow uses Kafka, and confluent-kafka not before a client is made.
"""
