"""The threads on which instances compute.

pauses         what the work of an instance waits for, and a thread that works for one instance
shared_thread  one thread of a process that works for several instances in turn
handover       pieces from one instance to another that shares its thread, without a socket
fair_lock      the lock that the thread shares with the one that copies checkpoints
tidy           when the cyclic garbage collector runs
"""
