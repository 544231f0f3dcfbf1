"""`python -m raystream`: the same as the command `raystream`."""

from raystream.cli import main

main()
