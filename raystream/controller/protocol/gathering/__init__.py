"""Gathering: over which nodes the state of a range travels to who restores it.

links    what the network between nodes can carry, as far as it was measured
plan     plans as values: routes and trees, and what replaces one that fails
predict  how long a plan takes
forms    star, line and tree
widest   paths chosen by what is left of each link; `auto`
"""
