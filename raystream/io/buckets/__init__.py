"""Files in buckets: what a URL such as `s3://bucket/rows/*.csv` names, through `pyarrow.fs`.

urls         the parts of a URL, and which URLs are refused
filesystems  what opens a bucket, with the settings of the environment; its errors in words
objects      find, read, write and delete objects
paths        a place in a bucket that is used like a `pathlib.Path`
"""
