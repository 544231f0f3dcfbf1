"""Linear Road traffic: pure functions of a seed, calibrated on the published MITSIM data.

No Spark here.

    plan       who enters where, when, and bound for where
    road       drives one direction of one expressway
    accidents  two cars that stop in one place
    rows       reports as rows of the layout, and what drivers ask
    history    what each car paid on the last 69 days
    calibration
               what was measured on the published data
"""
