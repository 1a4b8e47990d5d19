"""Cells of a sweep: one run of `simulate`, and the smallest size that reaches a level."""
