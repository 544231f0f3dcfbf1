"""What a process outside a job does with it: submit, watch, rescale, stop.

They speak with the controller of the job, an actor that has a name.

    submitting     starts the controller of a plan on a cluster, follows the job, ends it
    code_watch     notes which versions of the code a job has gone over to
    head_watch     notices that the cluster's head is gone while a job is followed
    jobs           which jobs run in a cluster; questions to their controllers
    watching       the status of a job, again and again, for `status`, `top` and `story`
    changing       asks the controller for a change, and waits until it is made
    rescaling      `scale`, `move` and `drain`: asks the controller, and waits for the moves
    upgrading      `upgrade`: has a job go over to the code of another flow, and waits for that
    forking        `fork --live`: reads the edges of a running job, as a guest
    querying       `rs.query`: reads rows of state while the job runs
    state_server   the same over HTTP, for `raystream state --http`
    state_text     keys as people write them, rows as people read them
    committed      reads rows at the committed checkpoint from the keepers
    pushing        `push`: records that somebody pushes by hand
    stopping       `checkpoint` and `stop`: asks the controller, and waits until it is done
"""
