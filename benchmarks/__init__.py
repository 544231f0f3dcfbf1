"""Benchmarks: every speed that the project states comes from a command here.

`python -m benchmarks` lists the commands; each checks its answers. The packages, those that use
others first:

    against    this tree and an older commit, in turns
    recovery   what it takes to replace killed operators
    chaos      faults and moves at random in running jobs, and simulated schedules
    gather     state that is gathered as star, line or tree, over shaped links
    model      hundreds of instances in a queueing model, with the real policy
    jobs       whole jobs: throughput, latency, checkpoints, moves, the start
    parts      one part of the engine by itself, without a job
    fuzz       hostile bytes at every port of a job, and in what it stores
    kafka      from one topic of Kafka to another
    peers      the same work in other systems
    shared     works and pictures that several of them use
"""
