"""What an operator knows, and what is stored of it.

keys            the hash of a key, its key group, ranges of key groups
kernels         compiled loops over columns of keys
counts          what an instance counts, by key group
growable_array  memory for an array that grows in place
tables          rows by key: the protocol of a state backend, and two backends
tiers           tables whose rows do not all lie in memory
segments        rows on disk, in files sorted by the hashes of their keys
images          a checkpoint of one operator and one range, as bytes
keeping         images that a keeper holds, in memory and in files
log             the epochs of an edge that its producer keeps
"""
