"""The storage lab: real servers and devices on this machine, below one directory, for the tests in tests/tiers.

``python -m tests.lab up`` starts a single-node Ceph (CephFS mounted with ceph-fuse, RGW with an S3 user), a light S3
server and loop devices; ``python -m tests.lab down`` stops exactly those and removes the directory. Everything listens
on loopback. What runs is written to lab.json, which the tests read.
"""
