"""Baselines: each client alone, one model for all, the true subspace, a personal ridge fit."""
