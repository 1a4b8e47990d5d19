"""Predictions of runs from theory, without simulation."""

from __future__ import annotations

from linfed.prediction.answers import Prediction, Quantity
from linfed.prediction.asked import predict

__all__ = ["Prediction", "Quantity", "predict"]
