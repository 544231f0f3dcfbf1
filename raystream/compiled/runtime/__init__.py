"""What compiled code calls. These modules import Numba when they are imported.

support      reads and writes columns and rows, for generated code
arithmetic   operators with Python's meaning, or an error
checked      sums and products that stay in 64 bits, or raise
functions    Python's functions, with Python's results or an error
mixing       ints that become floats because a name or a result may be either
rounding     `round`, to the float that is nearest to the exact decimal
calendars    windows that follow the clocks of a zone, or months
sequences    tuples and lists: membership, order, sorting
"""
