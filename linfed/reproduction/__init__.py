"""Experiments: finding and running them, and their records."""
