"""What theory predicts: fixed points, floors and laws, each without a free parameter and tested against measurement."""

from __future__ import annotations

from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix, fedavg_rate
from linfed.theory.empirical_risk import AtExactHeads, at_exact_heads
from linfed.theory.fedrep.near_truth import best_step_size, noise_floor, one_round_factor
from linfed.theory.fedrep.state_evolution import StateEvolution, one_round_means, state_evolution
from linfed.theory.fedrep.theorem1 import (
    fedrep_bound,
    fedrep_least_samples,
    fedrep_predicted_samples,
    fedrep_step_limit,
)
from linfed.theory.fedrep.theorem1_runs import Theorem1Run, theorem1_run
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
    "FluteTrace",
    "ShortcutRound",
    "ShortcutTrace",
    "StateEvolution",
    "Theorem1Run",
    "ThetaCoordinates",
    "at_exact_heads",
    "best_step_size",
    "fedavg_fixed_point",
    "fedavg_iteration_matrix",
    "fedavg_rate",
    "fedrep_bound",
    "fedrep_least_samples",
    "fedrep_predicted_samples",
    "fedrep_step_limit",
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
    "theorem1_run",
    "top_subspace_distance",
    "truncation_error",
    "truncation_floor",
]
