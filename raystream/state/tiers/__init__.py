"""Tables whose rows do not all lie in memory: the rows that were touched last are in a table of one
of the two kinds, the others in segments on disk.

tiered_table    what both kinds have alike: what is written and what is brought, counts
lasting_table   a tiered table whose files a successor on the same node can open
structured_tier structured rows
object_tier     Python rows
rounds          how rows leave memory, bit by bit
removed_keys    keys whose removal hides a record on disk
row_folder      files that a successor on the same node can open; their manifest at a checkpoint
tiered_rows     checkpoints: the rows in memory and on disk, as the columns of an image
"""
