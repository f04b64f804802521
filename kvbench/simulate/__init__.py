"""A trace on an engine with tiers, before anybody buys them: which tier finds what, and what it has to move (pure).

The rules are those of vLLM 0.32's OffloadingConnector with TieringOffloadingSpec (offloading/scheduler.py,
kv_offload/tiering/manager.py and kv_offload/cpu/manager.py); docs/simulation.md says which are kept and which are not.
"""
