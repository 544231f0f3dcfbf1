"""What `raystream replay` and `fork` do.

versions   finds the flow and the checkpoint, steps one version or two, prints what they show
live       a fork that is fed by the running job
debugging  Python's debugger, before a call of an operator or where a job has failed
"""
