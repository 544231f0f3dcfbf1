"""The processes that hold checkpoints, one on each node, and how a new instance gets them.

keeper         the Ray actor: images, journal, places of the boundary register
backup         its images, in the object store and in files
register_port  where instances claim boundaries
left_rows      rows on disk that dead instances have left are removed
fetching       the images with which an instance begins
gathered       by what ways they come
timing         how long parts of checkpoints take to keepers
"""
