"""Experiments on related papers and on all methods together."""
