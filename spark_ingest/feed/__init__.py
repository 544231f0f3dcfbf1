"""Spark feeds a running job with Linear Road: prepared rows, released at their pace.

rows     rows as they are pushed, and the marks between them
pace     when which rows are due
reading  the rows of some seconds of prepared data
"""
