"""Measuring: what to measure, round by round, on disk before the next point starts."""
