"""What a run shows to people.

While it lasts, and afterwards:

    progress   a table that is renewed, or plain lines
    report     a table for the terminal, and a page
    plots      the pictures of the page
    elastic    the run that finds its own size: its policy, and its decisions as a table
    elastic_plot
               the picture of such a run
"""
