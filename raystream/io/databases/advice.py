"""What users can do about what a database says."""

from __future__ import annotations

import re

_FILE = "Name a file that is such a database, or one that is not there, in a folder that is."
_KNOWN = (
    (r"^3F000", "Make the schema first: CREATE SCHEMA."),
    (r"^42501", "Give this user the right: GRANT, by one who may."),
    (r"^23502|NOT NULL constraint", "Give the column a default, or the record a field for it."),
    (r"^23|constraint failed", "A constraint of the table forbids such a row."),
    (r"^22|^42804|cannot store", "The type of each column has to hold what its field has."),
    (r"connection failed|failed to resolve|connection timeout",
     "Look at the address, the database, the user and the password: does it run, and does it let"
     " the machines of the job in?"),
    (r"connection info string|conninfo|invalid (connection|URI) |connection is bad"
     "|bad value for",
     "Write it as postgresql://user:password@host:port/database."),
    (r"unable to open database|not a database|not a valid DuckDB|Is a directory", _FILE),
)  # fmt: skip


def advice_of(error: Exception) -> str:
    """A hint for an error of PostgreSQL, SQLite or DuckDB; nothing if none is known."""
    words = f"{getattr(error, 'sqlstate', None) or ''} {error}"
    return next((hint for known, hint in _KNOWN if re.search(known, words)), "")
