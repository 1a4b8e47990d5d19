"""How fast linfed is, always as a ratio to something else timed in the same minute: ``python -m benchmarks``."""
