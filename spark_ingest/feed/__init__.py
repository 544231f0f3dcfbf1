"""Spark feeds a running job with Linear Road: prepared rows, released at their pace.

command  the command `feed`
feeding  a query of Spark, started again when it fails, until all rows are taken
state    the folder in which a feed keeps how far it is
source   the stream of prepared rows, as a data source of Spark
rows     rows as they are pushed, and the marks between them
pace     when which rows are due
reading  the rows of some seconds of prepared data
"""
