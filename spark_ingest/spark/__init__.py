"""A local Spark.

For the length of a `with` block:

    session    the block: quiet, bounded, and gone afterwards
    jobs       one job: how far it is, and its failure as one message
    shuffle    rows as whole Arrow tables, to the part of the output where they belong
    java       a Java that Spark can use
"""
