"""What theory predicts: fixed points, floors and laws, each without a free parameter and tested against measurement."""

from __future__ import annotations

from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix
from linfed.theory.generalisation import new_client_excess_quantile, new_client_mean_risk, single_model_floor

__all__ = [
    "fedavg_fixed_point",
    "fedavg_iteration_matrix",
    "new_client_excess_quantile",
    "new_client_mean_risk",
    "single_model_floor",
]
