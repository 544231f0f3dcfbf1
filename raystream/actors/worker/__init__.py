"""The processes that do the work of a job: one for each instance.

instance         the Ray actor of an instance, or of several that share its thread
seat             one of the instances of an actor
shell            an instance in a process: machine, tenure, and the threads around them
compute_loop     what is computed, in order
driving          the threads that do it
busy_meter       what it does with its time
answering        answers queries for rows of state, between two steps
subscriptions    one for each log that the instance reads
reading          how a source reads
register_client  how a source asks where its epochs end
register_places  asks the keepers that hold the register
shipping         checkpoints on their way to keepers
uploads          the calls that send them there
row_files        where its rows lie that memory has no room for, and what is left there
warmup           loading, while no other process needs the processor, what may be needed soon;
                 the code of other versions of the flow
fate             how a shell ends: stopped, done or failed
"""
