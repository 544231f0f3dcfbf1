"""One program for each system.

They run in the environment of their system, with `protocol` and NumPy only.

    protocol   what a program is asked, and what it answers
    on_raystream, on_bytewax, on_pathway, on_pyflink, on_spark
               the programs; Flink's own is in Java, in `java/`
"""
