"""What people write.

flow            flows and streams: sources, operators and sinks joined into a graph
nodes           the nodes of a flow, and what goes from one to another
epochs          `by_time`, `by_arrival`: how a source cuts its records into epochs
operators       `@rs.operator`, and an operator as declared
declarations    reads the declaration of an operator
operator_checks refuses what could not run
protocols       the forms of operators, for type checkers
windows         `tumbling`, `sliding`, `session`, and which window holds a time
world           operators that ask the world: their options, `now`, `random`, `request_id`
batch           columns of records and of state rows
keys            to which key group a key belongs
row_shapes      the state rows of a flow
connectors      base classes of sources and sinks, and how other classes are adapted
looking         what a source says of itself without a job
folders         no sink writes where another one writes or a source reads
arguments       what is wrong with an argument of a public call, in words
runner          what `Flow.run` calls, set from above
"""
