"""Sinks to files: parts, and what says which of them count.

sink        a sink of parts; what it keeps by epoch
formats     how parts are stored as Parquet and CSV (`files.jsonlines` has that of JSON)
json_text   rows as text in JSON, also for messages
places      how a file comes to its place in a folder or a bucket
manifest    what a folder of parts holds: one manifest per range, and their union
parts       what users call to find what counts, and to read it
"""
