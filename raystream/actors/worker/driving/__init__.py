"""The threads on which instances compute.

pauses              what the work of an instance waits for; a thread that works for one instance
shared_thread       one thread of a process that works for several instances in turn
local_subscription  how an instance reads the log of one on the same thread
fair_lock           the lock that the thread shares with the one that copies checkpoints
slices              how long a thread computes before others have their turn
tidy                when the cyclic garbage collector runs
"""
