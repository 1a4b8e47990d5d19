"""What theory predicts: fixed points, floors and laws, each without a free parameter and tested against measurement."""

from __future__ import annotations

from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix
from linfed.theory.generalisation import new_client_excess_quantile, new_client_mean_risk, single_model_floor
from linfed.theory.state_evolution import (
    StateEvolution,
    best_step_size,
    noise_floor,
    one_round_factor,
    one_round_means,
    state_evolution,
)

__all__ = [
    "StateEvolution",
    "best_step_size",
    "fedavg_fixed_point",
    "fedavg_iteration_matrix",
    "new_client_excess_quantile",
    "new_client_mean_risk",
    "noise_floor",
    "one_round_factor",
    "one_round_means",
    "single_model_floor",
    "state_evolution",
]
