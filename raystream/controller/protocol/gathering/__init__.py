"""Gathering: the nodes over which the state of a range travels to the node that restores it.

A new instance plans its restore with this, and `python -m benchmarks gather` carries plans out.

links    what the network between nodes can carry, as far as it is known
plan     plans as values: routes, trees, and new routes where a node fails
predict  how long a plan takes
forms    star, line and tree
widest   paths chosen by what is left of each link, and `auto`
"""
