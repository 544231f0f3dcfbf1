"""The live page: jobs of a cluster in a browser, for `raystream ui`.

What is shown is decided by `raystream.controller.reporting.views`; here it is drawn and served.

    watching  looks at all jobs of a cluster, again and again
    drawings  the parts of a view as HTML and SVG
    style     how they look
    asking    what the buttons ask for, and the questions before
    layout    where things are on the page, and how they are kept up to date
    doors     who may see the page: a token
    serving   the server
    beside    a page beside a run, in a process of its own
    notebook  what a cell of a notebook shows while its job runs
"""
