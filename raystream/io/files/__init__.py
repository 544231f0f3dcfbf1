"""Files as sources.

listing         which files: paths, patterns, folders, links; what is not read
reading         their bytes as text, whatever they are packed with and encoded in
handles         how many of them are open at a time
columns         which column of a file is which field of a record
declared        rows as batches of a declared type; what does not conform, with its place
nested          fields that are lists, dicts, tuples or records, as Arrow has them
bad_lines       damaged lines as a stream of their own
parquet         Parquet
csv             CSV
csv_dialect     how CSV is written, and its bytes as Arrow takes them
csv_values      cells as values, where Arrow does not convert them by itself
lines           text
json_source     JSON
json_values     JSON that is not an object on each line
jsonlines       an object of JSON as a record, and JSON Lines as a form of parts
"""
