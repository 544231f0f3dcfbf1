"""The controller as a machine: events in, commands out. The actor and the simulator run it.

machine         which part hears of which event
parts           the parts of the machine
messages        commands and events between the machine and its shell; calls of processes
job             what all parts look at
journal         what the controller has to know again after its own death
totals          what a job has done in all, in counts that never fall
history         what has happened to a job: recoveries, moves and upgrades that have ended
upgrading       a running job goes over to other code after one epoch
gathering       plans for the way of state to the node that restores it (no restore uses them yet)
members         instances as the controller knows them, and processes without a place
placement       places that are taken together: phases and events
phases          tables of phases
decide          what follows from a view of the job
recovery        which places come after a death, and when to give up
strategies      what a recovery starts from
move_requests   moves as values: what is asked for, and what that changes
register_views  which keepers hold the boundary register
shortage        how the end of memory is told from other errors, and what is said of it
saving          saving committed checkpoints in the durable tier
"""
