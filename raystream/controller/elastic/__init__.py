"""How many instances and nodes a job is to have.

scaling         what a policy finds in a running job, as requests for moves
thread_sharing  which instances leave a shared thread, and come back to it
detector        makes reports of what instances say, and has a policy look at them
policy          which ranges an operator is to have, from reports
range_cuts      cuts key groups into ranges of equal load
pool            how many spare nodes there are to be, and which are given back
"""
