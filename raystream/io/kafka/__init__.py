"""Kafka, through confluent-kafka: a source that keeps its own positions, and sinks.

    making      what users call
    settings    the settings of clients: what is set, what users may set, what is secret
    client      clients, and their errors in words
    partitions  where partitions begin and end, and which positions stand for their offsets
    reading     a partition: its messages from an offset on
    layout      which part of a message holds which field
    messages    messages as records
    source      the source
    encoding    records as messages
    journal     what Kafka knows of a sink's output: runs, claims, markers, staged messages. Pure
    transactions
                how an instance takes a range over, and its transactions
    writing     the same with a cluster: writers, topics, the journal's end
    sink        the sinks

Nothing here is imported before a flow uses Kafka, and confluent-kafka not before a client is made.
"""
