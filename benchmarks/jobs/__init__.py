"""Whole jobs, on Ray unless told otherwise.

Each module is a command, or what one command runs:

    epoch      the fixed cost of an epoch without records
    epochs     many epochs of one record, and records that are far apart, in one process
    linear_road
               Linear Road at full speed
    compare    W1, W2 and latency, here and in other systems
    checkpoints, checkpoint_latency
               what checkpoints cost in a job
    push       records that are pushed, beside the same ones from files
    postgres   rows that replace each other in a table of PostgreSQL
    elastic    moves at steady load: how long answers stay away
    large_state
               the process of an instance with much state is killed
    start, start_flow
               from `raystream run` to the first record at the sink
"""
