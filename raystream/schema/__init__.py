"""The shapes of data: what annotations say, and how values become columns and come back.

types        marks for annotations (`rs.Int32`, `rs.decimal`); the small records of all layers
value_kind   what a row of the table of kinds says
time_kinds, member_kinds, kinds
             the table: how datetimes, enumerations, Decimals and UUIDs are stored
fields       a field of a record or state row: how an annotation becomes columns
records      record classes (`NamedTuple`, frozen dataclass) as schemas
state        state classes (`rs.State`) as schemas, and their rows
objects      values that are no plain columns, as msgpack
values       whether values are of a declared type, as deep as it goes
columns      columns of records: the form in which records are moved and kept
storing      columns of what people have: records, lists, arrays; checked as they are stored
buffers      columns as blocks of memory, for sockets and spilled logs
blocks       what an operator's logic is given for an epoch, and what it returns
lengths      lengths of time as people write them: 300, timedelta, "5m"
"""
