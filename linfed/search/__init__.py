"""Tuning of hyper-parameters."""
