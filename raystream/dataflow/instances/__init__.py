"""A running copy of a vertex: what an instance does with an event.

Pure: no Ray, threads, clocks or I/O of its own; the user's code in a source or a sink does its own.
A driver (the process of an instance, the local runner, the simulator) does this with it:

    receive(edge, piece)  ->  ready()  ->  step()  ->  outlets.logs, to be served

    base      `Instance`, the protocol: what every driver may ask of any of the three kinds
    source    `SourceInstance`: takes the rows of an epoch that the driver has read
    inputs    `ReceivingInstance`: the receiving half, shared by the two kinds that have inputs
    keyed     `KeyedInstance`: an operator, with its logic and its rows of state
    asking    `AskingInstance`: an operator that asks the world
    controlled, control_row
              `ControlledInstance`: an operator with a control stream, and the row it makes of it
    sink      `SinkInstance`: hands batches to the user's sink
    outlets   `Outlets`: the sending half: fused operators, and an epoch log for each edge
    making    `make_instance`: the instance of a vertex, of whatever kind
"""
