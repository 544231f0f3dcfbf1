"""Gathering state over real and simulated networks.

classes   classes of links, and which host holds which part
network   hosts as network namespaces with shaped links
host      the process of a host: sends, passes on, receives
runs      carries plans out on those hosts
thousand  the same plans for 1,000 nodes, computed
figure    the picture: seconds over size, a line for each form
command   python -m benchmarks gather
"""
