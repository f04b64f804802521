"""Mutated inputs through the real program: every border ends in one sentence, and soon.

``python -m tests.fuzz --inputs N --seed S`` is the long run, tests/fuzz/test_fuzz.py the short one.
"""
