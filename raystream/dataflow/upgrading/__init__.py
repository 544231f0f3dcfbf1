"""Upgrades: an instance goes on with other code after an epoch that all instances know.

versions   the versions of a job's code, and after which epoch each of them begins
switching  when one instance waits, and when it goes on with another version
"""
