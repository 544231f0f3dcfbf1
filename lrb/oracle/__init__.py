"""What the answers must be, and whether they are.

The oracle shares no code with the flow that it judges:

    validate   compares the answers of a run, each of which counts once
    expected   the right answers, in one batch by Spark SQL
    sql        the rules of Linear Road as views
    accepted   which balances the original validator accepts
    answers    the files of a run: reading and checksum
"""
