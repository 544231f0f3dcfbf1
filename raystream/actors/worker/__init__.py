"""The processes that do the work of a job: one for each instance, and a keeper on each node.

instance         the Ray actor of an instance
keeper           the Ray actor that holds checkpoints of instances
shell            an instance in a process: machine, tenure, and the threads around them
compute_loop     the thread that computes
fair_lock        that thread takes turns with the one that copies checkpoints
busy_meter       what it does with its time
tidy             when the garbage collector runs
subscriptions    one for each log that the instance reads
reading          how a source reads
register_client  how a source asks where its epochs end
shipping         checkpoints on their way to keepers
uploads          the calls that send them there
fetching         the images with which an instance begins
warmup           loading, while no other process needs the processor, what may be needed soon
fate             how a shell ends: stopped, done or failed
"""
