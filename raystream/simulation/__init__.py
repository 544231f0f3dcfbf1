"""The simulator: whole jobs in simulated processes, with faults at any step, from one seed.

What is decided is the product's: the controller's machine, the instances and their tenures. What is
simulated is the time, the messages, and the processes that carry out the decisions.

    simulator   runs one schedule, or many; the command
    scenarios   what a schedule is made of, as data; what is not given is drawn by its seed
    references  what a flow gives when nothing disturbs it
    world       time, chance and messages: one heap of events, one random generator
    job         a job in a simulated cluster
    controller  carries out what the controller's machine commands: late, twice or not at all
    journal     how it writes its journal
    saving, restoring
                how checkpoints get to the durable tier, and to new instances
    processes   instances, keepers, sources, sinks, streams between them, the durable tier
    faults      what befalls a job
    moves       what is asked of it
    laws        what must hold whenever something is decided
    bounds      what an instance may hold, and what it may wait for
    upgrades    other versions of flows, for jobs whose code is changed while they run
    flows       small flows of every kind, to be simulated
"""
