"""Operators that ask the world: their answers are recorded once, in the boundary register.

questions  what an epoch asks, and in which calls
claiming   which vertices need the register
calls      what a call of the user's code gave, and what becomes of its failures
answers    answers as entries of the register, and as the output of an epoch

What cannot be computed again is recorded once. An entry is of a key group and an epoch: key groups
stay what they are when ranges are split and merged, so an entry belongs to the owner of its key
group. The first entry that is written counts, and it lies in all places of the register before any
instance acts on it. An instance that comes to the epoch later reads it and asks nothing: an
instance after a failure, a candidate of a move, an instance of another range. A question whose
entry was not written before its process died is asked again. So the world is asked at least once,
and what it answered counts once.

Each version of the code has entries of its own. An instance asks nothing for an epoch that a
version makes to which it has not gone over yet (`dataflow.upgrading`). What an instance that was
replaced, and knows of no upgrade, asks and records for such an epoch is read by nobody.

Only an owner asks. A candidate waits until the owner has recorded, and emits that. An owner that
was replaced may still ask, and what it records counts if it comes first.
"""
