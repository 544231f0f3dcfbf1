"""Queries: a client asks for the rows that an operator keeps for some keys while the job runs, and
the owners of the keys answer.

A *moment* is the number of a run and an epoch. The state of a run at the end of an epoch is one
value: recoveries and moves produce the same bits. So any instance that has applied an epoch may
answer for it, even an instance that was replaced and does not know it yet. But no instance may
answer for an earlier epoch than the client has seen. So the client keeps the greatest moment of all
answers and sends it with each query, and an instance answers only once it has applied that epoch.
A client never goes back, nor do several clients that share the moment.

    (client)                                        (instance)
    `StateRequest.queries(assignment)`   keys  -->  `look_up(tenure, query)`, between two steps
                                              <--   `Looked`: the rows, and the epoch
                                              <--   `NotYet.LATER`: the epoch is not applied yet
                                              <--   `NotYet.ELSEWHERE`: not its keys; the client
                                                    takes the newest assignment, and asks again
                                              <--   `NotYet.OVER`: the input has ended, and the
                                                    rows are gone

Everything here is pure: the simulator, which injects faults at any step, and the processes of a
cluster run the same code.

looking  at an instance: looks up the rows of keys
request  at a client: which instances to ask for which keys, and what they answered
"""
