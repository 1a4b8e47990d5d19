"""One call that says of a run what theory knows of it: which law serves, or which is missing."""

from __future__ import annotations

from linfed.prediction.answers import Prediction, Quantity
from linfed.prediction.asked import predict

__all__ = ["Prediction", "Quantity", "predict"]
