"""Faults and moves at random, with every answer checked.

Against real jobs and against the simulator:

    feed       `python -m benchmarks feed`: Linear Road fed by Spark, both of them struck
    soak       `python -m benchmarks.chaos`: paced jobs on Ray, struck every few seconds
    faults     what can be struck, who is chosen, and the signals
    nodes      the raylets, and a head that may die
    spaces     network namespaces whose links can be cut
    storm      moves at random while the job runs
    works      the jobs that are struck, and what each has answered
    pushed     the job that clients push to, and how its output is checked
    pushers    these clients, which are killed, too
    readers    clients that read the rows of a running job, and what is right
    schedules  `python -m benchmarks schedules`: simulated schedules on all processors
    soak_summary
               `python -m benchmarks soak-summary`: what all recorded runs came to
"""
