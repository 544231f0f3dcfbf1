"""Compiled operators: the user's functions, rewritten and compiled with Numba, called by a driver
that walks the columns of an epoch.

    source   reads a function and what its names stand for
    rewrite, expressions, patterns
             make it compilable: `yield` emits, `match` on the record is resolved per input type
    unit     all functions of one operator in one namespace
    driver   the text of the loops that call them
    build    compiles all of it, kept on disk
    operator what the engine calls, once per epoch
    buffers  where emitted records go
    rerun    an error in compiled code, found again interpreted, with the user's line
    support, arithmetic
             what the generated code calls; the only ones that import Numba when they are imported
"""
