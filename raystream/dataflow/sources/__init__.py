"""Source instances: splits that are read in order and cut into epochs.

split_reader  one split: its batches from a position on; errors of sources
recorded      recorded data: cut by event time
pace          how long the epochs of a paced job are, and when each is released
arrival       other data: cut where the boundary register says
arrival_split one split of such data
live          the same for what cannot be read again: the register holds the rows, too
ahead         records whose time is far ahead of those before them are set aside
idling        when a split is idle, and the watermark of several parts together
event_times   the watermark of a stream whose event time is a field of its own
watermark_rules
              what the watermark of a stream follows
epochs        what both have in common: the rows of an epoch, and where the splits are after it
"""
