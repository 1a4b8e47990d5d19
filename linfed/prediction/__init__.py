"""Predictions of runs from theory, without simulation."""

from __future__ import annotations

from linfed.prediction.dispatch import predict
from linfed.prediction.prediction import Prediction, Quantity

__all__ = ["Prediction", "Quantity", "predict"]
