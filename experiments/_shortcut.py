"""What the experiments on the shortcut draft share: sizes, truths, and a run that also measures the shortcuts."""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
from linfed.simulation.metrics import Recorder

N_CLIENTS, DIM, RANK = 50, 20, 2
LEARNED = 0.5
"""B counts as learned where its distance is below half: random starts lie at 0.98 and more."""


def problem_of(size: float, *, noise_std: float, orthogonal: bool = False) -> lf.SharedWithShortcuts:
    """Return truths whose shortcuts have this root mean square length; heads have length sqrt(k)."""
    return lf.SharedWithShortcuts(
        n_clients=N_CLIENTS, dim=DIM, rank=RANK, noise_std=noise_std, shortcut_norm=size, orthogonal=orthogonal
    )


def uncorrelated(problem: lf.SharedWithShortcuts, *, trials: int, seed: Any) -> lf.GivenTruth:
    """Return a problem's truths with shortcuts that are, over the clients, exactly uncorrelated with the heads.

    Their root mean square length is scaled back to what it was.
    """
    truth = problem.truth(seed, range(trials))
    assert truth.B is not None
    assert truth.W is not None
    assert truth.S is not None
    basis = np.linalg.qr(truth.W)[0]
    S = truth.S - basis @ (basis.mT @ truth.S)
    S *= np.linalg.norm(truth.S, axis=(-2, -1), keepdims=True) / np.linalg.norm(S, axis=(-2, -1), keepdims=True)
    return lf.GivenTruth(B=truth.B, W=truth.W, S=S, noise_std=problem.noise_std)


def run(
    algorithm: lf.Algorithm,
    problem: lf.SharedWithShortcuts,
    *,
    data: lf.FixedSamples | lf.FreshSamples,
    rounds: int,
    trials: int,
    seed: Any,
    record_every: int,
) -> dict[str, Any]:
    """Return the recorded rounds, and dist, parameter error and shortcut error, (trials, R), NaN once diverged.

    The first recorded round is 0; what an algorithm does at the end is the last one. A method without shortcuts is
    measured with shortcuts 0, Local only as one whose predictors are all shortcut; without B the dist is NaN.
    """
    truth = problem.truth(seed, range(trials))
    assert truth.S is not None
    shared = not isinstance(algorithm, lf.LocalOnly)
    names = ["parameter_error", *(["subspace_distance"] if shared else [])]
    recorder = Recorder(names, truth, RANK if shared else 0)
    numbers: list[int] = []
    found: dict[str, list[Any]] = {name: [] for name in ("dist", "error", "shortcut_error")}

    def record(number: int, state: lf.State, alive: Any) -> None:
        values = recorder.measure(state)
        S = 0.0 if state.S is None else state.S
        numbers.append(number)
        missing = np.full(trials, np.nan)
        found["dist"].append(np.where(alive, values.get("subspace_distance", missing), np.nan))
        found["error"].append(np.where(alive, values["parameter_error"], np.nan))
        found["shortcut_error"].append(np.where(alive, np.linalg.norm(S - truth.S, axis=(-2, -1)), np.nan))

    for step in lf.iterate(algorithm, problem, data=data, rounds=rounds, trials=trials, seed=seed):
        if step.number % record_every == 0 or step.number >= rounds:
            record(step.number, step.after, step.alive)
    alive = step.alive
    while len(numbers) < 2 or numbers[-1] < rounds:  # all trials diverged before the end
        record(min(rounds, numbers[-1] + record_every), step.after, alive)
    return {"rounds": np.array(numbers), **{name: np.stack(values, axis=1) for name, values in found.items()}}


def critical_size(truth: Any) -> Any:
    """Return, for each trial, by how much the shortcuts could grow before their spectrum reaches that of the heads.

    The factor c with ``lambda_min(Gamma) = c^2 lambda_max((1/n) sum s_i* s_i*')``.
    """
    heads = np.linalg.svd(truth.W, compute_uv=False)[:, -1]
    shortcuts = np.linalg.svd(truth.S, compute_uv=False)[:, 0]
    return heads / shortcuts


def limit_distance(truth: Any) -> Any:
    """Return the distance of the top-k subspace of Phi* from the span of B*, for each trial."""
    return lf.subspace_distance(truth.truncated(RANK).B, truth.B)
