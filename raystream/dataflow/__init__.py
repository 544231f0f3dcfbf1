"""How one instance runs: plans, pieces, canonical order, logic, the instance machine. No I/O."""
