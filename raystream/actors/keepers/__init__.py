"""The processes that hold checkpoints, one on each node, and how a new instance gets them.

keeper    the Ray actor: images, journal, places of the boundary register
backup    its images, in the object store and in files
fetching  the images with which an instance begins
"""
