"""Rows of state on disk: immutable files of rows, sorted by the hash of their keys.

record           the form of a record: what all kinds of rows have, whatever else they hold
paged_file       a file that is written once and mapped, with a checksum for each page
segment          rows in one such file: found by key, by range and by due time
stored_segment   what a segment has in memory, in a file beside it: another process can open it
segment_kernels  compiled loops over filters and records
cold_rows        all segments of an instance: the newest record of a key; folding
"""
