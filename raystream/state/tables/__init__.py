"""Rows of state by key, in one of two kinds of tables.

backend             `Table`, the protocol of a state backend; `PendingRows`, the first half of a
                    checkpoint

object_table        Python rows in a dict, for logics that go record by record

structured_table    fixed-width rows in one array, for batch and compiled operators. Its parts:
row_store           the rows, their dtype and order, and their index
row_index           an index that grows page by page
row_kernels         compiled functions of one row and of the index
loop_kernels        compiled loops over many rows
timers              when rows are due
removals            rows that were removed, until a checkpoint that holds the removal is stored
views               which rows a checkpoint has, and the rows that are put aside for it
view                the rows of a checkpoint, copied bit by bit while the table changes
string_dictionary   numbers for text
text_kernels        compiled loops over texts
structured_columns  from a view to the columns of an image
structured_restore  from images to rows
"""
