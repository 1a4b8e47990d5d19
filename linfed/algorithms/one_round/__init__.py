"""Estimators of the representation or the model that need one round."""
