"""Tests of Theorem 1 of the FedRep paper on runs: the verdict, and the tightness of the bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.representation.fedrep import FedRep
from linfed.checks import check_number
from linfed.numerics.linalg import qr_positive
from linfed.simulation.loop import Round
from linfed.statistics.findings import Finding, join_notes, judge, judge_failures
from linfed.statistics.intervals import Measured, median_interval
from linfed.theory.fedrep.theorem1.bound import PRINTED
from linfed.theory.fedrep.theorem1.runs import Theorem1Run

ROUNDING = 1e-12
"""Distances below this are due to rounding errors and count as within every bound."""

RESOLUTION = 0.05
"""Largest allowed share of failing trials: with at least 72 trials, the interval of 0 ends below it."""


def beyond_bound(run: Theorem1Run, exponent: float = PRINTED) -> Mask:
    """Return a mask (trials,) of the trials that exceed the bound in some recorded round, or have diverged."""
    distance = np.where(np.isnan(run.distance), np.inf, run.distance)
    above = distance > run.bound(exponent) * (1.0 + 1e-9)
    return np.asarray((above & (distance > ROUNDING)).any(axis=1))


def judge_theorem1(
    run: Theorem1Run,
    *,
    constant: float = 1.0,
    exponent: float = PRINTED,
    assumed: bool = True,
    resolution: float = RESOLUTION,
    **fields: Any,
) -> Finding:
    """Judge the claim of Theorem 1 that its bound holds in every recorded round, for nearly all trials.

    Parameters
    ----------
    run : Theorem1Run
    constant : float
        C in the hypothesis on m. The theorem does not specify it. It is never chosen so that the bound holds.
    exponent : float
        1/2 (T/2, as printed), or 1 (T).
    assumed : bool
        If True, the hypotheses are part of the claim. If False, only the inequality is judged, for any run.
    resolution : float
        Largest allowed share of failing trials, unless the theorem allows a larger one.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `source`.

    Returns
    -------
    Finding
        HYPOTHESES FAIL if a hypothesis does not hold, with the numbers of both sides. VACUOUS if the bound is nowhere
        below 1, or if the failure probability is not below 1. With p < n the constants are over the participant sets
        of the run, and the bound is lower than that of the theorem. Failures cannot refute it then.

    Notes
    -----
    The failure probability of the theorem is far too small to be distinguished from 0 by trials, hence `resolution`.
    `linfed.theory.fedrep.theorem1.tail` estimates such probabilities.
    """
    failed, allowed = beyond_bound(run, exponent), run.allowed
    resolution = check_number("resolution", resolution, positive=True)
    is_binding = (run.bound(exponent)[:, 1:] < 1.0).any()
    vacuous = "" if is_binding else "the bound is nowhere below 1"
    if allowed >= 1.0:
        vacuous = join_notes(vacuous, f"it allows a failure probability of {allowed:g}")
    finding = judge_failures(
        failed,
        allowed=max(allowed, resolution),
        theorem=assumed,
        hypotheses=run.hypotheses(constant) if assumed else (),
        vacuous=vacuous,
        **fields,
    )
    if failed.any() and run.participants < run.n_clients:
        partial = "p < n: sets that did not occur may have a lower sigma_min, and so a higher bound"
        return replace(finding, low=0.0, note=join_notes(finding.note, partial))
    return finding


def rate_ratios(run: Theorem1Run, exponent: float = PRINTED) -> Array:
    """Return for each trial the convergence rate of the distance divided by the rate of the bound, (trials,).

    Notes
    -----
    The rate is ``log(dist_0 / dist_T) / T``, where T is the last recorded round with a distance above 1e-11 of the
    initial one. If only round 0 has, T is the first recorded round, and its distance counts as 1e-11 of the initial
    one. The ratio is negative if the distance has grown, and minus infinity for a diverged trial. It is NaN if the
    initial distance is within rounding errors, or if the bound does not fall.
    """
    floor = np.maximum(1e-11 * run.start, ROUNDING)[:, None]
    rounds = run.distance.shape[1] - 1
    last = rounds - (run.distance > floor)[:, ::-1].argmax(axis=1)
    last = np.maximum(last, min(1, rounds))
    trials, bounds = np.arange(len(last)), run.bound(exponent)
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = np.log(run.start / np.maximum(run.distance, floor)[trials, last])
        ratios = measured / np.log(run.start / bounds[trials, last])
    ratios = np.where(np.isnan(run.distance[:, -1]), -np.inf, ratios)
    return np.where((run.start > ROUNDING) & (bounds[:, -1] < run.start), ratios, np.nan)


def judge_looseness(run: Theorem1Run, *, exponent: float = PRINTED, **fields: Any) -> Finding:
    """Judge whether the distance falls at least as fast as the bound; the statistic is the ratio of the rates.

    Only the trials in which the bound falls count. The finding is VACUOUS without such trials, and HYPOTHESES FAIL if a
    hypothesis of the theorem fails, with C = 1. Of the `fields` of a finding, `claim`, `setting`, `statistic` and
    `source` are required.
    """
    ratios = rate_ratios(run, exponent)
    ratios = ratios[~np.isnan(ratios)]
    defaults = {"claimed_low": 1.0, "theorem": True, "hypotheses": run.hypotheses()}
    if not len(ratios):
        defaults["vacuous"] = "the bound does not fall in any trial"
    return judge(_median(ratios) if len(ratios) else (np.nan, np.nan, np.nan), **defaults | fields)


def _median(ratios: Array) -> Measured:
    """Return the median of ratios and its interval, where the smallest ratios are the worst."""
    estimate, low, high = median_interval(-ratios)
    return -estimate, -high, -low


# --- the same batch ------------------------------------------------------------------------------------------


def same_batch_gaps(steps: Iterable[Round], algorithm: FedRep) -> tuple[Array, Array]:
    """Return the error of ``R'R = I + eta^2 G'G`` in each round of a run, and ``||R^{-1}||``.

    Parameters
    ----------
    steps : iterable of Round
        For example ``lf.iterate(algorithm, ..., engine="explicit")``. The batches must support further evaluations.
    algorithm : FedRep
        Algorithm of the run, with one local step and QR.

    Returns
    -------
    gaps : ndarray (trials, n_rounds)
        Largest entry of the difference of the two sides divided by the largest entry of the right side. If larger, the
        largest difference between B of the run and the Q factor.
    inverse : ndarray (trials, n_rounds)
        ``||R^{-1}||_2``.

    Notes
    -----
    G is the gradient of the round at the heads fitted to the same batch. For exact heads without a ridge, ``B'G = 0``.
    """
    gaps, inverse = [], []
    for step in steps:
        if step.number == 0:
            continue
        B, active = step.before.array("B"), step.batch.active
        eta = algorithm.step_in(step.batch)
        fit = algorithm.heads.solve(step.batch.project(B), step.before.take_clients("W", active), eta)
        G = eta * fit.representation_gradient()
        Q, R = qr_positive(B - G)
        expected = np.eye(B.shape[-1]) + G.mT @ G
        gap = np.abs(R.mT @ R - expected).max(axis=(-2, -1)) / np.abs(expected).max(axis=(-2, -1))
        gaps.append(np.maximum(gap, np.abs(step.after.array("B") - Q).max(axis=(-2, -1))))
        inverse.append(1.0 / np.linalg.svd(R, compute_uv=False)[..., -1])
    return np.stack(gaps, axis=1), np.stack(inverse, axis=1)
