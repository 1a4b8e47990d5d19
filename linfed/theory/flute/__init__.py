"""Theorems 5.1 and 5.5 of the FLUTE paper and their tests on runs, FLUTE's objective, and its low-rank limit."""

from __future__ import annotations

from linfed.theory.flute.coordinates import Region, ThetaCoordinates
from linfed.theory.flute.judges import (
    IDENTITY_TOLERANCE,
    PROOF_CONSTANT,
    bound_ratios,
    init_hypothesis,
    judge_beyond,
    judge_entry,
    judge_floor,
    judge_fresh,
    judge_gain,
    judge_growth,
    judge_local_rate,
    judge_rate,
    judge_rest,
    judge_staying,
    least_constant,
    step_hypothesis,
)
from linfed.theory.flute.low_rank import (
    average_direction_distance,
    flute_divergence_threshold,
    flute_population_minimizer,
    truncation_error,
    truncation_floor,
)
from linfed.theory.flute.mean_square import flute_stability_edge
from linfed.theory.flute.objective import flute_relative_gradient, flute_worst_ray
from linfed.theory.flute.theorems import (
    STEP_CONSTANTS,
    flute_bound,
    flute_covered_rounds,
    flute_gap,
    flute_local_rate,
    flute_rate,
    flute_start_bound,
    flute_step_limit,
)
from linfed.theory.flute.trace import FluteTrace, flute_trace

__all__ = [
    "IDENTITY_TOLERANCE",
    "PROOF_CONSTANT",
    "STEP_CONSTANTS",
    "FluteTrace",
    "Region",
    "ThetaCoordinates",
    "average_direction_distance",
    "bound_ratios",
    "flute_bound",
    "flute_covered_rounds",
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
    "init_hypothesis",
    "judge_beyond",
    "judge_entry",
    "judge_floor",
    "judge_fresh",
    "judge_gain",
    "judge_growth",
    "judge_local_rate",
    "judge_rate",
    "judge_rest",
    "judge_staying",
    "least_constant",
    "step_hypothesis",
    "truncation_error",
    "truncation_floor",
]
