"""Checkpoint images: what one operator and one range knew at a checkpoint, as columns and bytes.

image           the image and its header, encoded and decoded
row_shape       how the rows of an operator are stored: their Arrow schema
object_columns  from Python values to columns, and back
readable        stored rows as people read them, without the user's classes
partition       images cut by key groups, merged, and folded, without the user's classes
chain           what the next checkpoint of an instance holds, and which ones are stored
image_store     what a keeper holds: chains of images of other instances
upgrade         rows of an older version of a state class
image_kernels   compiled loops over rows and columns
"""
