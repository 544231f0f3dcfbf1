"""Sinks to databases, visible by epoch: rows and a marker in one transaction.

    markers     what a database knows of its output: what is there, and its one writer. Pure
    connection  what a database has to be able to do
    sink        `TransactionalSink`: what an instance does, for every database
    waiting     how long it tries again when a database cannot be reached
    rows        the columns of a table, and batches as Arrow tables
    sql         tables of markers and of rows in SQL, for every database that speaks it
    tables      a sink whose rows go to one table
    advice      what users can do about what a database says
    sqlite      SQLite
    duckdb      DuckDB
    postgres    PostgreSQL
    making      what users call

Nothing here is imported before a flow uses such a sink, and the packages that talk to databases
not before the sink connects.
"""
