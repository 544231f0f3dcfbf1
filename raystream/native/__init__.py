"""What touches private parts of Numba, PyArrow and the operating system. Those of Ray are in
`raystream/actors/cluster/ray_internals.py`; no other module of raystream touches any.

    numba_internals  what compiled operators and kernels use of Numba beyond its documented names
    jit              `njit` for functions that many processes need: one compiles, the others load
    code_cache       the folder where machine code is kept, and locks for those who compile
    lazy_pandas      keeps PyArrow from importing pandas until somebody needs pandas
    memory           what this process and its node use of the node's memory
    resident         which pages of a mapped file are in memory; to fetch others side by side
    thread_priority  priorities and time slices of threads
"""
