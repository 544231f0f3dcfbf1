"""What several benchmarks use.

Nothing here is a command.

    w1         the keyed running count: source, three forms of the operator, a sink that checks
    words      lines of words, and their windowed count
    notes      a sink that writes lines into a file
    namespaces hosts as network namespaces of this machine
    drawing    pictures: panels beside each other
"""
