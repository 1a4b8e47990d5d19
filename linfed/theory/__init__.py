"""What theory predicts: fixed points, floors and laws, each without a free parameter and tested against measurement."""

from __future__ import annotations

from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix, fedavg_rate
from linfed.theory.empirical_risk import AtExactHeads, at_exact_heads
from linfed.theory.fedrep.gradient_heads import GradientHeadsEvolution, gradient_heads_evolution
from linfed.theory.fedrep.near_truth import best_step_size, noise_floor, one_round_factor
from linfed.theory.fedrep.second_order import SecondOrder, second_order_evolution
from linfed.theory.fedrep.state_evolution import StateEvolution, one_round_means, state_evolution
from linfed.theory.fedrep.under_parameterised import (
    UnderParameterisedEvolution,
    UnderParameterisedFloor,
    under_parameterised_evolution,
    under_parameterised_floor,
)
from linfed.theory.fedrep.without_qr import UnnormalisedEvolution, norm_growth, unnormalised_evolution
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
    "GradientHeadsEvolution",
    "SecondOrder",
    "ShortcutRound",
    "ShortcutTrace",
    "StateEvolution",
    "ThetaCoordinates",
    "UnderParameterisedEvolution",
    "UnderParameterisedFloor",
    "UnnormalisedEvolution",
    "at_exact_heads",
    "best_step_size",
    "fedavg_fixed_point",
    "fedavg_iteration_matrix",
    "fedavg_rate",
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
    "gradient_heads_evolution",
    "new_client_excess_quantile",
    "new_client_mean_risk",
    "noise_floor",
    "norm_growth",
    "one_round_factor",
    "one_round_means",
    "outside_length",
    "second_order_evolution",
    "shortcut_loss_rounds",
    "shortcut_repulsion",
    "shortcut_spectrum_hypothesis",
    "shortcut_trace",
    "single_model_floor",
    "state_evolution",
    "top_subspace_distance",
    "truncation_error",
    "truncation_floor",
    "under_parameterised_evolution",
    "under_parameterised_floor",
    "unnormalised_evolution",
]
