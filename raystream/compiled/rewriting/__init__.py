"""A user's functions, made compilable.

source       reads a function and what its names stand for
rewrite      its statements: `yield` emits, fields are stored in their widths
expressions  its expressions: arithmetic as Python's, calls of helpers
patterns     `match` and `isinstance` on records, resolved for each input type
unit         all functions of one operator, rewritten, in one namespace
"""
