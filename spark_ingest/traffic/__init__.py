"""Linear Road traffic: pure functions of a seed, calibrated on the published MITSIM data.

`plan` decides who enters where, when and bound for where; `road` drives one direction of one
expressway; `requests` and `history` add what drivers ask and what they paid. No Spark here.
"""
