"""Theoretical predictions: fixed points, floors, rates and state evolutions, without fitted parameters."""

from __future__ import annotations

from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix, fedavg_rate
from linfed.theory.collapse import CollapsedMinimum, collapsed_minimum, least_global_nc2, simplex_etf
from linfed.theory.empirical_risk import AtExactHeads, at_exact_heads
from linfed.theory.fedrep.fixed_samples.break_even import break_even_clients, fixed_sample_edge
from linfed.theory.fedrep.fixed_samples.largest_angle import largest_sine, median_distance
from linfed.theory.fedrep.fixed_samples.minimum import FixedSampleFloor, fixed_sample_floor, fixed_samples_needed
from linfed.theory.fedrep.fixed_samples.similar import SimilarFloor, similar_floor
from linfed.theory.fedrep.near_truth.any_heads import (
    near_truth_best_step,
    near_truth_factor,
    near_truth_floor,
    stability_edge,
)
from linfed.theory.fedrep.near_truth.closed_forms import (
    best_step_size,
    near_truth_threshold,
    noise_floor,
    one_round_factor,
)
from linfed.theory.fedrep.near_truth.covariances import NearTruthDrift, mean_gradient, near_truth_drift
from linfed.theory.fedrep.near_truth.refitted import known_heads_bound, refitted_heads_limit
from linfed.theory.fedrep.near_truth.schedule import best_step_schedule, mean_squared_sine, schedule_asymptote
from linfed.theory.fedrep.near_truth.weights import optimal_weights
from linfed.theory.fedrep.near_truth.without_qr import UnnormalizedEvolution, norm_growth, unnormalized_evolution
from linfed.theory.fedrep.rounds.gradient_heads import GradientHeadsEvolution, gradient_heads_evolution
from linfed.theory.fedrep.rounds.second_order import SecondOrder, second_order_evolution, second_order_floor
from linfed.theory.fedrep.rounds.state_evolution import StateEvolution, one_round_means, state_evolution
from linfed.theory.fedrep.rounds.under_parameterized import (
    UnderParameterizedEvolution,
    UnderParameterizedFloor,
    under_parameterized_evolution,
    under_parameterized_floor,
)
from linfed.theory.fedrep.theorem1.bound import (
    fedrep_bound,
    fedrep_bound_rounds,
    fedrep_least_samples,
    fedrep_predicted_samples,
    fedrep_step_limit,
)
from linfed.theory.fedrep.theorem1.runs import Theorem1Run, theorem1_run
from linfed.theory.fedrolex import fedrolex_cycle
from linfed.theory.flute import (
    FluteTrace,
    ThetaCoordinates,
    average_direction_distance,
    flute_bound,
    flute_divergence_threshold,
    flute_gap,
    flute_local_rate,
    flute_population_minimizer,
    flute_rate,
    flute_relative_gradient,
    flute_stability_edge,
    flute_start_bound,
    flute_step_limit,
    flute_trace,
    flute_worst_ray,
    truncation_error,
    truncation_floor,
)
from linfed.theory.local import best_local_ridge, local_mean_risk
from linfed.theory.local_updates import contracted_distance, fedavg_contraction, meta_contraction
from linfed.theory.mean_square import mean_square_rate
from linfed.theory.mixing import StationaryModels, l2gd_stationary_models
from linfed.theory.new_clients import (
    new_client_excess_quantile,
    new_client_mean_risk,
    outside_length,
    single_model_floor,
)
from linfed.theory.partial_participation import fedavg_stationary_covariance, scaffold_iteration_matrix
from linfed.theory.privacy import gaussian_mechanism_noise
from linfed.theory.shortcut import (
    ShortcutRound,
    ShortcutTrace,
    shortcut_loss_rounds,
    shortcut_repulsion,
    shortcut_spectrum_hypothesis,
    shortcut_trace,
    top_subspace_distance,
)
from linfed.theory.spectral import SpectralFloor, spectral_floor

__all__ = [
    "AtExactHeads",
    "CollapsedMinimum",
    "FixedSampleFloor",
    "FluteTrace",
    "GradientHeadsEvolution",
    "NearTruthDrift",
    "SecondOrder",
    "ShortcutRound",
    "ShortcutTrace",
    "SimilarFloor",
    "SpectralFloor",
    "StateEvolution",
    "StationaryModels",
    "Theorem1Run",
    "ThetaCoordinates",
    "UnderParameterizedEvolution",
    "UnderParameterizedFloor",
    "UnnormalizedEvolution",
    "at_exact_heads",
    "average_direction_distance",
    "best_local_ridge",
    "best_step_schedule",
    "best_step_size",
    "break_even_clients",
    "collapsed_minimum",
    "contracted_distance",
    "fedavg_contraction",
    "fedavg_fixed_point",
    "fedavg_iteration_matrix",
    "fedavg_rate",
    "fedavg_stationary_covariance",
    "fedrep_bound",
    "fedrep_bound_rounds",
    "fedrep_least_samples",
    "fedrep_predicted_samples",
    "fedrep_step_limit",
    "fedrolex_cycle",
    "fixed_sample_edge",
    "fixed_sample_floor",
    "fixed_samples_needed",
    "flute_bound",
    "flute_divergence_threshold",
    "flute_gap",
    "flute_local_rate",
    "flute_population_minimizer",
    "flute_rate",
    "flute_relative_gradient",
    "flute_stability_edge",
    "flute_start_bound",
    "flute_step_limit",
    "flute_trace",
    "flute_worst_ray",
    "gaussian_mechanism_noise",
    "gradient_heads_evolution",
    "known_heads_bound",
    "l2gd_stationary_models",
    "largest_sine",
    "least_global_nc2",
    "local_mean_risk",
    "mean_gradient",
    "mean_square_rate",
    "mean_squared_sine",
    "median_distance",
    "meta_contraction",
    "near_truth_best_step",
    "near_truth_drift",
    "near_truth_factor",
    "near_truth_floor",
    "near_truth_threshold",
    "new_client_excess_quantile",
    "new_client_mean_risk",
    "noise_floor",
    "norm_growth",
    "one_round_factor",
    "one_round_means",
    "optimal_weights",
    "outside_length",
    "refitted_heads_limit",
    "scaffold_iteration_matrix",
    "schedule_asymptote",
    "second_order_evolution",
    "second_order_floor",
    "shortcut_loss_rounds",
    "shortcut_repulsion",
    "shortcut_spectrum_hypothesis",
    "shortcut_trace",
    "similar_floor",
    "simplex_etf",
    "single_model_floor",
    "spectral_floor",
    "stability_edge",
    "state_evolution",
    "theorem1_run",
    "top_subspace_distance",
    "truncation_error",
    "truncation_floor",
    "under_parameterized_evolution",
    "under_parameterized_floor",
    "unnormalized_evolution",
]
