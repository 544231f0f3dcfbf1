"""python -m benchmarks fuzz: hostile bytes at every port of a job, and in what it stores.

noise    bytes that are nearly right
target   sends bytes to a target, and finds what must never happen
ports    targets: the data port, the push port and the page, as a job opens them
stored   targets: what reads bodies, tickets, pieces, images and manifests
command  the command
"""
