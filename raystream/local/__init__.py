"""Jobs in one process, without Ray: the shell for small inputs and for tests.

job       `LocalJob`: all instances of a plan, driven by a loop; `run_local` for tests
source    how its sources read
several   when several small epochs are one step
asking    asks the world, on a thread of its own; processes of a cluster use it, too
recheck   checking mode: all instances are made again at every checkpoint and compared
replay    a job again, from a saved checkpoint; no sink is written
probe     looks at single calls of operators in a replay
hearing   what sinks would be given
forking   a job that is fed by the edges of a running one
rereading what sources of that job have read, again
comparing what two versions of a flow make of the same input
run       `run_here`: runs a plan at its pace and saves its checkpoints, for `raystream.run`
"""
