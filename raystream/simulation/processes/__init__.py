"""The processes of a simulated cluster, and what stands for the disks and networks between them.

instances   a process with an instance: its machine, its tenure, and what drives them
streams     pieces on their way from the log of one instance to another
sources     how source instances read: recorded data at a pace, or what has arrived by chance
asking      how instances ask the world, and record what it answered
asking_flows
            flows that ask the world
control_flows
            flows with control streams
lists       what the sources of the flows read
sinks       compare all that they are given with what it has to be
keepers     hold images and the journal; how instances ship checkpoints to them, part by part
disks       the disks of nodes, with the files of keepers
register    the boundary register: its places, and the claims of sources
database    a database with transactions, and a sink that writes to it
readers     clients that query state, and the check of what they read
states      what every operator keeps at the end of each epoch when nothing disturbs it
tier        the durable tier, which outlives all of them
"""
