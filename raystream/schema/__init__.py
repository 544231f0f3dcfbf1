"""The shapes of data: column types, record schemas, state rows, and columns of records."""
