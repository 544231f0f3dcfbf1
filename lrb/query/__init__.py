"""The flow that answers Linear Road, and how one run of it goes.

From the run down to the records:

    run        one run over prepared data, and what there is to say of it
    flow       the flow, and how long its epochs are
    operators  the rules of the benchmark: one operator each
    records    what flows between operators, and what they keep
    expenditure
               daily expenditure: a table of history beside the stream
    source     prepared data as a source
    fed        the flow over rows that are pushed while it runs
    fed_run    one run of it
    feeder     the feed of a run, as a process of its own
    replicas   a few expressways of traffic, replayed as many
    sink       answers, stamped and written as parts
    folder     the folder of answers: what may be in it
"""
