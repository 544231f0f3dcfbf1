"""Logics: what an operator does with the records of an epoch.

base         `Logic`, the base class
select       which logic runs an operator
interpreted  record by record: stateless, and keyed
timed        record by record, keyed, with timers
waiting      keeps records until the watermark has passed them (`wait=True`)
windows      record by record, in tumbling and sliding windows
sessions     record by record, in session windows
triggered    record by record, in windows that close more than once, or by a count
batches      a whole epoch at a time, as columns
compiled     the face of `raystream.compiled`
answered     what the world has answered to an operator that asks it
failures     on_error="stream": what fails becomes a record of its own
undo         a table that can undo what was done for one record
alarms       when timers and windows are due, by key group
tiered       around a logic some of whose rows are on disk
"""
