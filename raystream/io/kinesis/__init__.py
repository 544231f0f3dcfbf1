"""Streams of Amazon Kinesis, as sources and sinks. `rs.io.kinesis` makes both.

    making    what users call
    client    a client of boto3, which errors pass, and their words
    shards    which shards there are, and which positions stand for what was read of them
    reading   one shard, from a position on
    source    `KinesisStream`: shards as splits, also those that come while the job runs
    sink      `SentStream`: at least once, because Kinesis has no transactions

A shard can be read again from any sequence number, so nothing is recorded: positions stand for
sequence numbers, which have more than 64 bits.
"""
