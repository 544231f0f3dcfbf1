"""The parts of the controller's machine. Each has its own fields, looks at one `Job`, and returns
commands.

    journal          writes the newest entry
    checkpoints      asks for on-demand checkpoints
    register         has the boundary register held by enough keepers
    replication      starts keepers, and chooses which hold whose checkpoints
    keeper_choice    the rule for that choice
    hiring           starts processes, and has some stand by
    placements       has places taken
    placement_steps  the table of what can happen to a placement
    beginning        lets the processes of a placement begin to work
    rebalancing      carries moves out, with the table of what can happen to one
    move_attempt     how the places of a move are taken
    requests         takes requests for moves and for leaving nodes up
    commits          commits checkpoints, and keeps members informed
    decisions        what is known of the job as a whole, and what follows
    drill            checking mode: replaces an instance after each commit
"""
