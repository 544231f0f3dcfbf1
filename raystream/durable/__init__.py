"""The durable tier: committed checkpoints in a store that outlives the cluster.

store       what a store is; one in a folder; what opens one at a URL
s3          a store in a bucket
manifest    what a saved checkpoint says of itself
inheriting  images for a flow that has changed since they were stored
states      reads the state in a saved checkpoint as Arrow tables
editing     edited rows in their stored form; the difference of two states
saves       writes, finds, reads and removes saved checkpoints
"""
