"""A model of many small nodes, in which the real detector and policy decide.

The command calls the modules below it.

    simulate   `python -m benchmarks simulate`: what a threshold costs in instances and latency
    simulate_plot
               the picture of that
    queueing   the model: positions, queues and shares of cores, tick by tick
"""
