"""`python -m benchmarks recovery`: from the kill of operators until latency is as usual.

The command calls the modules below it.

    table      the command: which cases are measured, and the table
    plot       the picture of the same runs
    kills      one job whose operator is killed again and again
"""
