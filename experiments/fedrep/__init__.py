"""Experiments on the FedRep paper."""
