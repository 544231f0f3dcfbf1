"""Linear Road: tolls, accident alerts and accounts of simulated motorways.

Built on raystream's public surface; `python -m lrb` lists the commands.

    cli        the commands
    steps      what the commands have in common: generate, prepare, run, judge, show
    options    what the options of commands mean
    rating     the largest number of expressways that a machine keeps up with
    reporting  tables, pictures and pages of a run
    query      the flow that answers, and how one run of it goes
    oracle     the right answers, computed in one batch, and the comparison with them
"""
