"""Batched numerical kernels, each tested against a loop, and random streams."""
