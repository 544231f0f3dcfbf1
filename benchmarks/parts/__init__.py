"""One part of the engine by itself, without a job.

Each module is a command, but for `sizes`, which `benchmarks checkpoints` uses:

    claims     claims at the boundary register, and calls through Ray
    compiled   the inner loop of compiled operators
    kernels    the loops over rows and records
    tables     a large table while it grows, and while it is copied
    tiers      a table that keeps some of its rows in memory, the others on disk
    restore    from encoded images to a table
    small_epochs  what a small epoch costs in each instance of a chain
    paced_epochs  what it costs in three processes at a pace
    keeping    images at a keeper: speed and memory
    query      what queries for rows of state cost the instance that answers
    page       what the live page costs the controller, its server and a browser
    sizes      rows, bytes and milliseconds of checkpoints, by the size of the state
    touch      memory that is touched for the first time
"""
