"""Benchmarks of linfed, as ratios to other code timed in the same minute: ``python -m benchmarks``."""
