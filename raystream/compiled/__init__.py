"""Compiled operators: the user's functions, rewritten and compiled with Numba, called by a driver
that walks the columns of an epoch.

    rewriting    a user's functions, made compilable
    runtime      what the compiled code calls; imports Numba when it is imported
    driver       the text of the loops that find rows and call the user's functions
    window_text  of these the part that goes through the windows of a record
    build        compiles rewritten functions and driver into one module, kept on disk
    operator     what the engine calls, once per epoch
    buffers      where emitted records go
    rerun        an error in compiled code, found again by an interpreted call, with the user's line
"""
