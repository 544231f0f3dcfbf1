"""python -m benchmarks fuzz: hostile bytes at every port of a job, and in what it stores.

noise    bytes that are nearly right
target   what is struck, and what may never happen
ports    the data port, the push port and the page, as a job opens them
stored   what is read from sockets and stores: pieces, bodies, images, manifests
command  the command
"""
