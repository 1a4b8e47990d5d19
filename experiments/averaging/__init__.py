"""Experiments on federated averaging and on meta-learning."""
