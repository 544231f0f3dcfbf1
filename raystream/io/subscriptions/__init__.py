"""Subscriptions as sources: what comes once over a connection, and the job records.

base       `SubscribedSource`: messages as batches, acknowledged when they are recorded
options    arguments that several of them have
waiting    a connection that breaks is made again, for a limited time
websocket  `rs.io.websocket`
events     `rs.io.events`: server-sent events
mqtt       `rs.io.mqtt`
redis      `rs.io.redis`: Redis streams
nats       `rs.io.nats`: JetStream
sqs        `rs.io.sqs`
rabbitmq   `rs.io.rabbitmq`

Only an instance that owns its split connects. A message is acknowledged to the sender, where that
is possible, once the register holds it in all places. Where messages have numbers that rise, the
last recorded one is known to the next reader of the split (`Source.knows`): it asks for those after
it, and what comes again all the same is left out. So these are exactly once; the others are at
least once where the sender waits for an acknowledgement, and otherwise at most once for what was
under way to a process that died.
"""
