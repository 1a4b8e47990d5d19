"""Evaluation of a trained state on new samples and on new clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.parts.base import Algorithm, State
from linfed.checks import check_integer, is_several, short_repr
from linfed.data.explicit import ExplicitBatch
from linfed.data.labels import LabelLaw
from linfed.numerics.linalg import quiet
from linfed.numerics.streams import Seed, Stream, check_seed, generators
from linfed.problems import Problem, Truth, check_problem, n_classes
from linfed.simulation.fitted import check_imported
from linfed.simulation.metrics import client_risks
from linfed.system.memory import check_fits

NEW_CLIENTS = 100
"""Default number of new clients per trial."""

CHUNK_VALUES = 2**22
"""Number of floats of the new clients' samples that are held at a time."""


def new_client_risks(
    algorithm: Algorithm,
    final: State,
    trained: tuple[Problem | None, Seed, int],
    n_samples: Sequence[int],
    *,
    clients: int | None,
    seed: Seed | None,
    problem: Problem | None,
) -> Array:
    """Return the risks of new clients, (trials, len(n_samples), clients); see `Result.new_clients`.

    Parameters
    ----------
    algorithm : Algorithm
        Algorithm that adapts the new clients.
    final : State
        Final state of the training.
    trained : tuple
        Problem, seed and number of trials of the training.
    n_samples, clients, seed, problem
        As in `Result.new_clients`.
    """
    trained_problem, trained_seed, n_trials = trained
    if final.classes or n_classes(problem):
        raise ValueError(
            "new_clients() supports only regression: the risk of a classifier has no closed form; use "
            "lf.Result.per_client"
        )
    sizes = _checked_sizes(n_samples)
    check_imported(algorithm)
    seed = trained_seed if seed is None else check_seed(seed)
    if problem is None:
        family = require_problem(trained_problem, "new_clients() requires a ground truth")
        if np.ndim(family.noise_std):
            raise ValueError(
                "new_clients() requires problem=: noise_std has one number for each training client, and none for new "
                "clients"
            )
        if not hasattr(family, "new_clients"):
            raise ValueError(f"problem = {short_repr(family)} has no method new_clients: give problem=, of new clients")
        count = NEW_CLIENTS if clients is None else check_integer("clients", clients)
    else:
        family, count = check_problem(problem), problem.n_clients
        if clients is not None and check_integer("clients", clients) != count:
            raise ValueError(
                f"clients = {short_repr(clients)} must be {count}, the number of clients of problem, or omitted"
            )
    draw: Callable[..., Truth] | None = getattr(family, "new_clients", None)
    given = getattr(family, "n_trials", None)
    if given is not None and given != n_trials:
        raise ValueError(f"problem has arrays for {given} trials, but the run had {n_trials}")
    dim = final.dim
    if family.dim != dim:
        raise ValueError(f"problem has dim = {family.dim}, expected d = {dim} as the run had")
    check_fits(  # three copies of the samples: as drawn, by client, and truncated to a size
        3.0 * count * max(sizes) * dim + float(n_trials) * len(sizes) * count,
        f"n_samples up to {max(sizes)} for {count} new clients in dimension {dim}",
        "use fewer clients or samples (clients=, n_samples=)",
    )
    out = np.empty((n_trials, len(sizes), count))
    length = max(1, CHUNK_VALUES // (count * max(sizes) * dim))
    for start in range(0, n_trials, length):
        trials = range(start, min(start + length, n_trials))
        chosen = final.trials(slice(trials.start, trials.stop))
        if family.design.per_client:
            raise ValueError("new_clients() requires a design with one covariance of x for all clients")
        with quiet():
            if problem is None and draw is not None:
                truth = draw(family.truth(trained_seed, trials), count, seed, trials)
            else:
                truth = family.truth(seed, trials)
            out[start : trials.stop] = _risks(algorithm, chosen, truth, sizes, seed, trials)
    return out


def require_problem(problem: Problem | None, wanted: str) -> Problem:
    """Return the problem of a result, or raise an error if it is missing or its class is not imported."""
    if problem is None or not hasattr(problem, "truth"):
        given = "the run had none" if problem is None else f"only the text of {short_repr(problem)} was saved"
        raise ValueError(f"{wanted}, but {given}: give problem=")
    return problem


def _risks(
    algorithm: Algorithm, state: State, truth: Truth, sizes: list[int], seed: Seed, trials: Sequence[int]
) -> Array:
    """Return the risks (trials, sizes, clients) of the clients of a ground truth."""
    X, noise = _samples(truth, state.dim, max(sizes), seed, trials)
    active: Indices = np.broadcast_to(np.arange(X.shape[1]), X.shape[:2])
    y = ExplicitBatch(X, LabelLaw(B=truth.B, W=truth.W, S=truth.S, noise=noise), active=active).y
    out = []
    for size in sizes:
        batch = ExplicitBatch(np.ascontiguousarray(X[:, :, :size]), y[:, :, :size].copy(), active=active)
        out.append(client_risks(algorithm.adapt(state, batch).for_prediction(), truth))
    return np.stack(out, axis=1)


def _samples(truth: Truth, dim: int, size: int, seed: Seed, trials: Sequence[int]) -> tuple[Array, Array]:
    """Return X (trials, clients, size, d) and the label noise (trials, clients, size).

    The random streams are read sample by sample, for all clients at a time. So a smaller size gets the first samples
    of a larger one.
    """
    part = truth.W if truth.W is not None else truth.S
    assert part is not None
    clients = part.shape[1]
    X, noise = np.empty((len(trials), clients, size, dim)), np.empty((len(trials), clients, size))
    rows = np.empty((size, clients, dim))
    for index, (x_rng, noise_rng) in enumerate(
        zip(generators(seed, Stream.NEW_X, trials), generators(seed, Stream.NEW_NOISE, trials), strict=True)
    ):
        truth.design.fill(x_rng, rows)
        X[index] = rows.swapaxes(0, 1)
        noise[index] = truth.noise_levels(np.arange(clients)) * noise_rng.standard_normal((size, clients)).T
    return X, noise


def _checked_sizes(n_samples: Sequence[int]) -> list[int]:
    if not is_several(n_samples) or len(n_samples) == 0:
        raise ValueError(
            f"n_samples = {short_repr(n_samples)} must be a sequence of sample counts, e.g. [1, 2, 5, 10, 20]"
        )
    return [check_integer(f"n_samples[{i}]", size) for i, size in enumerate(n_samples)]
