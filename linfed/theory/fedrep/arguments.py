"""Checks of the common arguments of FedRep's predictions: sizes, step sizes and initial angles."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.step_size import checked_rounds, checked_step_size
from linfed.errors import check_array, check_integer, check_number, check_shape, short_repr

ORTHONORMAL_TOLERANCE = 1e-9
"""Tolerance for orthonormal columns, for each entry of their Gram matrix."""


def checked_sizes(
    dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None, *, exact_heads: bool = True
) -> tuple[int, int, int]:
    """Check the sizes and return d, m and p."""
    dim, n_samples = check_integer("dim", dim), check_integer("n_samples", n_samples)
    if dim < 2 * rank:
        raise ValueError(f"dim = {dim} must be at least 2 rank = {2 * rank}")
    if exact_heads and n_samples < rank + 2:
        raise ValueError(
            f"n_samples = {n_samples} must be at least rank + 2 = {rank + 2}: otherwise the recursion has no moments "
            "(and B does not move up to n_samples = rank)"
        )
    participants = n_clients if participants is None else check_integer("participants", participants)
    if participants > n_clients:
        raise ValueError(f"participants = {participants} must be at most n_clients = {n_clients}")
    return dim, n_samples, participants


def checked_isotropic_sizes(
    dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None
) -> tuple[int, int, int, int, int]:
    """Return d, k, n, m and p for heads with ``(1/n) sum_i w_i w_i' = I``, which requires n >= k."""
    k = check_integer("rank", rank)
    n = check_integer("n_clients", n_clients, minimum=k)
    d, m, p = checked_sizes(dim, k, n, n_samples, participants)
    return d, k, n, m, p


def set_share(n: int, p: int) -> float:
    """Return the variance of a mean over p of n clients without replacement, divided by the variance over clients."""
    return (n - p) / (p * (n - 1)) if p < n else 0.0


def checked_steps(step_size: float | npt.ArrayLike, rounds: int) -> tuple[float, ...]:
    """Return the step size of each round."""
    rounds = check_integer("rounds", rounds, minimum=0)
    kept = checked_step_size("step_size", step_size)
    if callable(kept):
        raise ValueError(f"step_size = {short_repr(kept)} must be a positive finite number, or one for each round")
    return (kept,) * rounds if isinstance(kept, float) else checked_rounds(kept, rounds)[:rounds]


def start_at(
    delta: float | None, B0: npt.ArrayLike | None, B_star: npt.ArrayLike | None, *, dim: int, rank: int
) -> tuple[Array, Array]:
    """Return the initial N and Q, (k, k) or (trials, k, k)."""
    given = start_bases(delta, B0, B_star, names=("B0", "B_star"), shapes=((dim, rank), (dim, rank)))
    if isinstance(given, float):
        return math.sqrt((1.0 - given) * (1.0 + given)) * np.eye(rank), given**2 * np.eye(rank)
    return given


def start_bases(
    delta: float | None,
    B0: npt.ArrayLike | None,
    truth: npt.ArrayLike | None,
    *,
    names: tuple[str, str],
    shapes: tuple[tuple[int, int], tuple[int, int]],
) -> float | tuple[Array, Array]:
    """Return delta, or for given bases B0 and U ``U'B0`` and the Gram matrix of the part of B0 outside U."""
    if (delta is None) == (B0 is None) or (B0 is None) != (truth is None):
        raise ValueError(f"the initial B requires either delta or both {names[0]} and {names[1]}")
    if delta is not None:
        return float(check_number("delta", delta, minimum=0.0, maximum=1.0))
    bases = []
    for name, value, shape in zip(names, (B0, truth), shapes, strict=True):
        basis = check_array(name, value, [("d", "k"), ("trials", "d", "k")])
        check_shape(name, basis, (*basis.shape[:-2], *shape), f"(d, {'k' if shape == shapes[0] else 'r'})")
        if np.abs(basis.mT @ basis - np.eye(shape[1])).max() > ORTHONORMAL_TOLERANCE:
            raise ValueError(f"{name} of shape {basis.shape} must have orthonormal columns")
        bases.append(basis)
    trial_count(" and ".join(names), *bases)
    N = bases[1].mT @ bases[0]
    outside = bases[0] - bases[1] @ N
    return N, outside.mT @ outside


def trial_count(names: str, *arrays: Array) -> int | None:
    """Return the number of trials of arrays (trials, .., ..) or (.., ..); None if no array has a trial axis."""
    counts = list(dict.fromkeys(len(array) for array in arrays if array.ndim == 3))
    if len(counts) > 1:
        raise ValueError(f"{names} are for {' and '.join(map(str, counts))} trials; they must agree")
    return counts[0] if counts else None
