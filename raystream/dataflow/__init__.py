"""How one instance runs. No Ray, threads, clocks or I/O.

plan               the vertices, edges and ranges of a job, as a value
assignment         which instance serves which range from which epoch on
routing            which instance reads from which, under an assignment
pieces             what travels on an edge for an epoch, and its header
inlet              the pieces of an edge, until those of an epoch are all there
order              canonical order: the pieces of an epoch as the input of a logic
logic              what an operator does with the records of an epoch
asking             operators that ask the world, whose answers are recorded
instances          an instance of a source, an operator or a sink
sources            splits that are read in order and cut into epochs
emission           what was emitted, sorted by the key group of its consumer
register           the boundary register: what is recorded once, as where an epoch ends by arrival
queries            rows of state for clients that ask while the job runs
snapshot           checkpoint and restore of an instance, as images
checkpoint_epochs  which epochs are checkpoints
tenure             what an instance is told and says in its life: assignments, commits, the end
upgrading          versions of the code, and when an instance goes over to another one
progress           what an instance says that it has done
sinks              what a sink is told before its first write
checking           checking mode: copies of a piece are compared
warming            what a process loads ahead
"""
