"""Predictions for FedRep: state evolution, closed forms near B*, and Theorem 1 of the paper."""
