"""Sweeps: run the cells of a grid on executors, and save their results in a store."""
