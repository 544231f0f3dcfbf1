"""This tree against an older commit, in turns.

The command calls the modules below it.

    command    `python -m benchmarks against REV`
    ratios     paired ratios with their intervals, and the table
    works      what is run: a command, and the figure that is read from its JSON
"""
