"""The published Linear Road files: checked, sorted and written.

Two passes over the input:

    prepare    both passes, and the writing
    survey     the first pass: every row by itself, and counts
    past       the toll history
    rules      what a row may hold, and what a car may report
    pieces     files in pieces that know the numbers of their lines
    origins    from numbers of lines back to file and line
"""
