"""Benchmarks: every speed that the project states comes from a command here."""
