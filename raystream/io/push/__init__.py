"""Records that clients push over HTTP, as a source: `rs.io.push`.

source     the source: its lanes are splits, and what a lane has taken is recorded
entrance   where clients push into a running job
hub        what serves the lanes of a process: two ports, and a thread with an event loop
flight     Arrow Flight as another way to `handling`
handling   what becomes of a request
requests   headers and answers of all of them
sealing    requests to stage records and to seal them later, as Spark does
staging    what is staged and not sealed
lane       what has come for a lane and waits to be recorded
sequences  the last sequences of a lane's senders
bodies     JSON Lines and Arrow IPC as batches
"""
