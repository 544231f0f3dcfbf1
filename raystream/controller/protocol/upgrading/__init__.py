"""Upgrades: a running job goes over to other code after an epoch that all instances agree on.

requests   what is asked for, and what the journal has of it
upgrades   carries an upgrade out
"""
