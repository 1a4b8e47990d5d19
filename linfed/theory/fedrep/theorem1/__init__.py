"""Theorem 1 of the FedRep paper: its bound, its hypotheses on runs, and its tests."""
