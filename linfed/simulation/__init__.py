"""Simulation of an algorithm: checked arguments, choice of engine, the loop over rounds, metrics and results."""
