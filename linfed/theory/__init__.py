"""What theory predicts: fixed points, floors and laws, each without a free parameter and tested against measurement."""

from __future__ import annotations

from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix, fedavg_rate
from linfed.theory.empirical_risk import AtExactHeads, at_exact_heads
from linfed.theory.fedrep.fixed_samples import FixedSampleFloor, fixed_sample_floor
from linfed.theory.fedrep.near_truth import best_step_size, noise_floor, one_round_factor
from linfed.theory.fedrep.pays import federation_pays_from, fixed_sample_edge
from linfed.theory.fedrep.state_evolution import StateEvolution, one_round_means, state_evolution
from linfed.theory.flute import (
    FluteTrace,
    ThetaCoordinates,
    flute_bound,
    flute_divergence_threshold,
    flute_gap,
    flute_local_rate,
    flute_population_minimiser,
    flute_rate,
    flute_relative_gradient,
    flute_step_limit,
    flute_trace,
    flute_worst_ray,
    truncation_error,
    truncation_floor,
)
from linfed.theory.local import best_local_ridge, local_mean_risk
from linfed.theory.new_clients import (
    new_client_excess_quantile,
    new_client_mean_risk,
    outside_length,
    single_model_floor,
)
from linfed.theory.shortcut import (
    ShortcutRound,
    ShortcutTrace,
    shortcut_loss_rounds,
    shortcut_repulsion,
    shortcut_spectrum_hypothesis,
    shortcut_trace,
    top_subspace_distance,
)

__all__ = [
    "AtExactHeads",
    "FixedSampleFloor",
    "FluteTrace",
    "ShortcutRound",
    "ShortcutTrace",
    "StateEvolution",
    "ThetaCoordinates",
    "at_exact_heads",
    "best_local_ridge",
    "best_step_size",
    "fedavg_fixed_point",
    "fedavg_iteration_matrix",
    "fedavg_rate",
    "federation_pays_from",
    "fixed_sample_edge",
    "fixed_sample_floor",
    "flute_bound",
    "flute_divergence_threshold",
    "flute_gap",
    "flute_local_rate",
    "flute_population_minimiser",
    "flute_rate",
    "flute_relative_gradient",
    "flute_step_limit",
    "flute_trace",
    "flute_worst_ray",
    "local_mean_risk",
    "new_client_excess_quantile",
    "new_client_mean_risk",
    "noise_floor",
    "one_round_factor",
    "one_round_means",
    "outside_length",
    "shortcut_loss_rounds",
    "shortcut_repulsion",
    "shortcut_spectrum_hypothesis",
    "shortcut_trace",
    "single_model_floor",
    "state_evolution",
    "top_subspace_distance",
    "truncation_error",
    "truncation_floor",
]
