"""What the cluster decides: plans, commits, recoveries, moves, sizes. No Ray, threads or clocks.

options    how a job is run: all options
elastic    how many instances and nodes a job is to have
planning   from a flow to a plan, and where a run begins
reporting  what a job did, and how it stands
protocol   the controller as a machine: events in, commands out
"""
