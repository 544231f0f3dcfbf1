"""`python -m lrb`."""

from lrb.cli import main

main()
