"""Jobs whose code is changed while they run.

rows         state classes that can take the rows of the other version
other_flows  other versions of some of the simulator's flows
"""
