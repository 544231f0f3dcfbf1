"""Operators that ask the world, or that it controls: what may be said of them.

options    `concurrency=` and the like, checked
signature  what such a function takes and returns, by its annotations
controls   what an operator declares of its control stream
steering   an operator with its control stream, in a flow
controlled `rs.controlled`
context    `rs.now`, `rs.random`, `rs.request_id`
"""
