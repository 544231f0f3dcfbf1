"""PostgreSQL as a source: the changes of a table, and the rows of one that only grows.

    making      what users call
    pgoutput    the messages of the server's output plugin `pgoutput`. Pure
    changes     transactions as rows of a table with a position for each. Pure
    values      the text of values as columns. Pure
    slot        publication, slot, snapshot and stream: all that is said to the server
    recorded    what both sources are: one split, recorded, of a server
    source      `ChangedRows`: the changes of a table, by logical replication
    polling     `RisingRows`: the rows of a table, by asking again and again

What comes is recorded by the job (`rs.Source.recorded`), because a slot has one reader. Nothing
here is imported before a flow uses such a source, and psycopg not before it connects.
"""
