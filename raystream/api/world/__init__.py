"""Operators that ask the world: what may be said of them, and what they may ask for.

options    `concurrency=` and the like, checked
signature  what such a function takes and returns, by its annotations
context    `rs.now`, `rs.random`, `rs.request_id`
"""
