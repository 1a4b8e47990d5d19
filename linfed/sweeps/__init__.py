"""Sweeps: schedule, executors and store."""
