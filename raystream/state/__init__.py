"""What an operator knows: keys, tables, epoch logs, checkpoints, assignments."""
