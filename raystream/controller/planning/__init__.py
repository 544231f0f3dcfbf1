"""From a flow to a plan, and where a run begins.

adapting      a saved checkpoint as one of a flow that has changed since
changes       what such a flow makes of it: what begins empty, goes or moves
no_watermark  finds windows and timers that would wait as long as a job runs
plans         lists the splits, looks at the first rows, settles the clock
program       the fingerprint of a plan and of the user's code
resuming      where a run with a durable tier begins
run_options   checks the options of `run`
upgrading     which flows a running job may go over to
time_units    finds times that are in another unit than the flow
"""
