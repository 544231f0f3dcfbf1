"""One program for each system; they run in its environment, with `protocol` and NumPy only."""
