"""Operators that ask the world, or that it controls: what may be said of them.

options    `concurrency=` and the like, checked
signature  what such a function takes and returns, by its annotations
controls   `rs.controlled`: an operator with a control stream
context    `rs.now`, `rs.random`, `rs.request_id`
"""
