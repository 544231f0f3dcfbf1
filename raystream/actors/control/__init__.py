"""The controller of a job: an actor that runs the job's machine, and the calls to its other actors.

The machine itself decides without Ray: `raystream/controller/protocol/`.

    controller      what Ray calls; how a controller begins and ends
    job_loop        events into the machine, its commands out, until the job ends
    requests        what clients ask for, handed from their threads to that loop
    reporter        samples, status and report of a job
    exporter        gives the metrics of the job to Ray
    answers         what a controller is made with, and what it answers to clients
    state_routes    what clients need to read rows of state
    succession      what a restarted controller finds of its job
    processes       does what the machine commands: starts, calls and ends actors
    calls           calls that are not answered yet, and what their answers mean
    handles         the actors of a job by the names of their processes
    actor_names     the names of a job's actors in Ray
    journal_writer  writes the journal to its keepers
    nodes           which nodes are alive, and which have to be left
    node_pool       asks Ray's autoscaler for the nodes of a pool
"""
