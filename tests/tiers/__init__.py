"""Tests against the storage lab (tests/lab): real Ceph, real devices. Collected only when this folder is named."""
