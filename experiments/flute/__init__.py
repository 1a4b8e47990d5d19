"""Experiments on the FLUTE paper."""
