"""Windows as people declare them, and which of them hold an event time.

kinds      `tumbling`, `sliding`, `session`, `global_window`
zones      when the clocks of a time zone change
assigner   from times to windows: one by one, and whole columns
"""
