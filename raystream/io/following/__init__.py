"""Folders and prefixes where files keep arriving: `follow=True` of the sources of files.

    settings  what users say of it
    looking   what is there now
    watching  which of it is whole, and which was taken already: without clocks and files
    pieces    what the job records of a file, and the operator that reads it by that
    source    the source

The order in which files come cannot be computed again, so the job records it: the source emits
*pieces*, each a file and a part of it, and does that as a source that cannot be read again. What is
recorded of a piece is its place, and not its rows. An operator that is part of every instance of
the source makes rows of it. Where the file was read here just now, its rows are at hand; an
instance that replays reads them from the file again.
"""
