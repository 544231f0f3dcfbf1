"""What people write: operators, flows, batches, and the shapes of sources and sinks."""
