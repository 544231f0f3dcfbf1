"""What `raystream replay` and `fork` do.

versions   finds the flow and the checkpoint, steps one version or two, prints what is asked for
debugging  Python's debugger, before a call of an operator or where a job has failed
"""
