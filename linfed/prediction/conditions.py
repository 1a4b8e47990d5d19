"""Conditions of laws on runs: each function returns why a run does not meet the condition, or an empty string."""

from __future__ import annotations

import numpy as np

from linfed.algorithms.parts.base import Algorithm
from linfed.algorithms.parts.heads import GradientHeads
from linfed.algorithms.parts.step_size import Scheduled
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.checks import short_repr
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples, draws_factors
from linfed.numerics.medians import MEDIANS
from linfed.prediction.cases import FedRepRun
from linfed.prediction.law import Run
from linfed.problems.designs import is_gaussian


def isotropic(run: Run[Algorithm]) -> str:
    """Require isotropic Gaussian x."""
    design = run.problem.design
    known = is_gaussian(design) and design.variance is not None
    return "" if known else f"for design = {short_repr(design)}: x must be Gaussian and isotropic"


def all_participate(run: Run[Algorithm]) -> str:
    """Require full participation."""
    p, n = run.job.sizes.participants, run.job.sizes.n_clients
    return f"for {p} of {n} participants: all clients must participate" if p < n else ""


def constant_step(run: Run[Scheduled]) -> str:
    """Require one step size for all rounds."""
    size = run.algorithm.step_size
    schedule = f"for step_size = {short_repr(size)}, a schedule: it must be one number for all rounds"
    return "" if isinstance(size, float) else schedule


def equal_weights(run: Run[Algorithm]) -> str:
    """Require equal weights of the clients."""
    data = run.job.data
    if getattr(run.algorithm, "weights", "uniform") == "uniform" or not isinstance(data, GivenSamples):
        return ""  # other samples have one number, or `equal_samples` or `drawn_samples` refuses them
    return "for weights = 'samples' and different numbers of samples: use 'uniform'" if np.ptp(data.counts) else ""


def equal_noise(run: Run[Algorithm]) -> str:
    """Require one noise level."""
    differs = np.ndim(getattr(run.job.problem, "noise_std", 0.0)) > 0
    return "for clients with different noise_std: it must be one number" if differs else ""


def equal_samples(run: Run[Algorithm]) -> str:
    """Require one number of fresh samples."""
    data = run.job.data
    differs = isinstance(data, FreshSamples) and data.unequal
    return "for clients with different numbers of fresh samples: they must be equal" if differs else ""


def not_given(run: Run[Algorithm]) -> str:
    """Require samples of the problem."""
    return "for GivenSamples; simulate one round instead" if isinstance(run.job.data, GivenSamples) else ""


def drawn_samples(run: Run[Algorithm]) -> str:
    """Require fixed samples that can be drawn again."""
    data, sizes = run.job.data, run.job.sizes
    if isinstance(data, FreshSamples):
        return "for FreshSamples: use FixedSamples or GivenSamples"
    if isinstance(data, FixedSamples) and draws_factors(data, sizes.n_clients, sizes.dim):
        return "for in_law = True: its fixed point requires drawn samples"
    return ""


# --- FedRep -----------------------------------------------------------------------------------------------------


def fresh(run: FedRepRun) -> str:
    """Require fresh samples."""
    data = run.job.data
    return "" if isinstance(data, FreshSamples) else f"for {type(data).__name__}: rounds share their samples"


def exact_heads(run: FedRepRun) -> str:
    """Require exact heads without a ridge."""
    return "" if run.exact else f"for heads = {short_repr(run.algorithm.heads)}: they must be exact, without a ridge"


def known_heads(run: FedRepRun) -> str:
    """Require exact heads without a ridge, or gradient heads that are not rotated."""
    if not isinstance(run.algorithm.heads, GradientHeads):
        return exact_heads(run)
    return "for gradient heads with rotate_heads = True: it must be False" if run.algorithm.rotate_heads else ""


def no_clip(run: FedRepRun) -> str:
    """Require messages that are not clipped."""
    return "" if run.clip is None else f"for clip = {run.clip:g}: messages must not be clipped"


def averaged(run: FedRepRun) -> str:
    """Require a mean or a sum of the messages."""
    name = run.algorithm.aggregate
    return f"for aggregate = {name!r}: it must be 'mean' or 'sum'" if name in MEDIANS else ""


def no_message_noise(run: FedRepRun) -> str:
    """Require messages without noise."""
    noisy = run.message_noise_std > 0
    return "for noise on messages, except with exact heads and a ground truth of rank k" if noisy else ""


def one_update(run: FedRepRun) -> str:
    """Require one update of B in a round."""
    steps = run.algorithm.representation_steps
    return f"for representation_steps = {steps}: it must be 1" if steps > 1 else ""


def no_levels(run: FedRepRun) -> str:
    """Require messages that are not quantised."""
    levels = run.algorithm.levels if isinstance(run.algorithm, CompressedFedRep) else None
    why = "the variance of quantisation depends on the messages; measure it and use"
    return "" if levels is None else f"for levels = {levels}: {why} lf.theory.near_truth_factor(compression=...)"


def drawn_participants(run: Run[Algorithm]) -> str:
    """Require participants that are drawn at random."""
    given = not run.everybody and np.ndim(run.job.participation) > 0
    return "for given participants: participation must be a share or a count" if given else ""


def plain_reference(run: FedRepRun) -> str:
    """Require that the top-k subspace of the regressors is the reference subspace."""
    problem = type(run.problem).__name__
    missing = run.truth_rank is None
    return f"for {problem}: the reference of B is other than the top-k subspace of the regressors" if missing else ""


def rank_k(run: FedRepRun) -> str:
    """Require a ground truth of rank k."""
    r, k = run.truth_rank, run.algorithm.rank
    return "" if r == k else f"for a ground truth of rank {r} and rank = {k}: they must be equal"


def two_rank(run: FedRepRun) -> str:
    """Require d >= 2k: with fewer dimensions some angles between B and B* are 0."""
    d, k = run.job.sizes.dim, run.algorithm.rank
    return f"for dim = {d} below 2 rank = {2 * k}" if d < 2 * k else ""


def second_moments(run: FedRepRun) -> str:
    """Require exact heads with second moments, m >= k + 2 for all clients."""
    m, k = run.samples, run.algorithm.rank
    if m == k + 1:
        return f"for n_samples = rank + 1 = {m}: heads have no second moments"
    fewer = run.fewest < k + 2
    return f"for a client with n_samples = {run.fewest}, fewer than rank + 2 = {k + 2}" if fewer else ""


def equal_clients(run: FedRepRun) -> str:
    """Require one number of samples, one noise level and no weights."""
    ranks = f"a ground truth of rank {run.truth_rank} and rank = {run.algorithm.rank}"
    kind = ranks if run.exact else "gradient heads"
    return f"for {kind} and clients with different {run.differing}: they must be equal" if run.differing else ""


def qr(run: FedRepRun) -> str:
    """Require orthonormal columns of B after every round, except in runs that `WithoutQR` predicts."""
    if run.algorithm.orthonormalize:
        return ""
    others = {
        "gradient heads": not run.exact,
        "noise on messages": run.message_noise_std > 0,
        "sparsified messages": bool(run.compression),
        f"a ground truth of rank {run.truth_rank} and rank = {run.algorithm.rank}": bool(rank_k(run)),
        f"dim = {run.job.sizes.dim} below 2 rank": bool(two_rank(run)),
        f"clients with different {run.differing}": bool(run.differing),
        "a schedule of step sizes": run.steps.ndim > 0,
    }
    return next((f"for orthonormalize = False and {what}" for what, found in others.items() if found), "")


ROUND = (averaged, fresh, isotropic, known_heads, no_clip, one_update, qr, drawn_participants, plain_reference)
"""What all laws of FedRep on fresh samples require."""
