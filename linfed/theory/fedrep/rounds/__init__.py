"""Moments of one round of FedRep, and the state evolutions that iterate them."""
