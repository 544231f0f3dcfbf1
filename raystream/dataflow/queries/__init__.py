"""Queries: the rows that an operator keeps for some keys, answered by the owners of the keys while
the job runs.

A *moment* is the number of a run and an epoch. The state of a run at the end of an epoch is one
value: recoveries and moves come to the same bits. So any instance that has applied an epoch may say
what the state was then, also one that was replaced and does not know it yet. What an instance may
not do is to say less than a client has seen. A client keeps the greatest moment that it was told,
and sends it with each query; the instance answers only once it has come that far. So no client goes
back, nor do several that share the moment.

    (client)                                        (instance)
    `StateRequest.queries(assignment)`   keys  -->  `look_up(tenure, query)`, between two steps
                                              <--   `Looked`: the rows, and the epoch
                                              <--   `NotYet.LATER`: not come so far: it waits
                                              <--   `NotYet.ELSEWHERE`: not its keys; the client
                                                    takes the newest assignment, and asks again
                                              <--   `NotYet.OVER`: all ended, the rows are gone

Everything here is pure. The simulator drives it with faults at any step, and the processes of a
cluster drive the same.

looking  at an instance: looks keys up
request  at a client: which instances are asked for which keys, and what was answered
"""
