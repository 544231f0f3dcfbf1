"""Ray itself: which cluster a process is connected to, and what its processes get.

Nothing here knows of plans or jobs, but for what pickling refuses.

    connecting     finds, starts and joins a cluster
    private_ray    notes the Rays that runs have started for themselves, and finds them again
    head           what the head says of the nodes, asked by a thread of its own
    directory      what the instances of a source tell each other
    auth           the token that this process shows a cluster
    environment    variables of a job's processes, and where they look for modules
    by_value       code that other processes cannot import: of `__main__`, of an upgrade
    user_code      the user's functions and classes behind vertices, and their lines in errors
    log_lines      lines of logs name the job, the operator and the instance
    pickling       refuses a plan that cannot be pickled, and names the part to blame
    sigterm        SIGTERM while this process is connected to Ray
    spot           a process on each node of EC2, which tells Ray when its machine is taken away
    tracing        posts what a job has decided to a collector of traces
    ray_internals  everything private of Ray that raystream touches
"""
