"""Tuning of hyper-parameters over a grid, and levels for the search for the smallest size."""
