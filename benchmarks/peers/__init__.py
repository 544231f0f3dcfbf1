"""The same work in other systems, each in an environment of its own.

`python -m benchmarks.peers install NAME` makes an environment.

    catalog    systems, versions, the forms of the work in each, and how to run one
    running    one run in a process of its own, with a time limit, and its answers checked
    inputs     the files that all of them read
    ours       raystream's forms of the work
    programs   one program for each system
"""
