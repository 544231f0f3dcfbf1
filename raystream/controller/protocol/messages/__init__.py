"""Words between the controller's machine and its shell, and between processes.

commands    what the machine wants done
events      what the shell reports to the machine
calls       what the controller's side calls of instances and keepers
"""
