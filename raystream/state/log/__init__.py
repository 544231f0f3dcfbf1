"""The epochs of an edge that a producer keeps, from the committed checkpoint on.

epoch_log  entries by epoch, each cut by key group
spill      entries beyond a budget, on disk
"""
