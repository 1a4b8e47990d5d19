"""Batched kernels, each tested against a loop, and the random streams."""
