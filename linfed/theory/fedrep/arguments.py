"""Checks of the common arguments of FedRep's predictions: sizes, step sizes and initial angles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.parts.step_size import checked_rounds, checked_step_size
from linfed.checks import (
    check_array,
    check_bool,
    check_integer,
    check_noise_std,
    check_noise_stds,
    check_number,
    check_shape,
    check_weights,
    short_repr,
)
from linfed.data.samples import check_counts
from linfed.system.memory import check_fits
from linfed.theory.drawn_clients import set_share

ORTHONORMAL_TOLERANCE = 1e-9
"""Tolerance for orthonormal columns, for each entry of their Gram matrix."""

FEW_DIGITS = 50.0
"""The same in units of the rounding error, for numbers of fewer digits than double precision."""


def is_orthonormal(basis: Array, tolerance: float = ORTHONORMAL_TOLERANCE) -> bool:
    """Return whether the columns of every basis (.., d, k) are orthonormal."""
    return bool(np.abs(basis.mT @ basis - np.eye(basis.shape[-1])).max() <= tolerance)


def check_orthonormal(name: str, basis: Array, given: object) -> None:
    """Raise unless the columns of every basis (.., d, k) are orthonormal, in the precision of the `given` array."""
    kind = np.asarray(given).dtype
    rounding = FEW_DIGITS * float(np.finfo(kind).eps) if kind.kind == "f" else 0.0
    if not is_orthonormal(basis, max(ORTHONORMAL_TOLERANCE, rounding)):
        raise ValueError(f"{name} of shape {basis.shape} must have orthonormal columns")


def check_independent(name: str, B: Array) -> Array:
    """Return columns of every B (.., d, k) divided by their largest entry; raise if they are linearly dependent."""
    largest = np.abs(B).max(axis=-2, keepdims=True)
    scaled = B / np.where(largest > 0, largest, 1.0)  # a column's length does not matter
    if (lowest := np.linalg.matrix_rank(scaled).min(initial=B.shape[-1])) < B.shape[-1]:
        raise ValueError(f"{name} of shape {B.shape} must have linearly independent columns, but has rank {lowest}")
    return scaled


def checked_sizes(
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    participants: int | None,
    *,
    exact_heads: bool = True,
    near: bool = False,
) -> tuple[int, int, int]:
    """Check the sizes and return d, m and p; near B* d may be below 2k."""
    dim, n_samples = check_integer("dim", dim), check_integer("n_samples", n_samples)
    if near and dim <= rank:
        raise ValueError(f"dim = {dim} must be above rank = {rank}")
    if dim < 2 * rank and not near:
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


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Sizes of a round, and numbers of samples, noise variances and weights of the clients.

    Parameters
    ----------
    dim, rank, n_clients, participants : int
    counts, variances, weights : ndarray () or (n,)
        One value for all clients, or one for each client; the mean weight is 1.
    message_variance : float
        Variance of noise on each entry of the mean message.
    compression : float
        Relative variance of a random compression of messages.
    shared_mask : bool
        If True, all clients of a round have one mask.
    """

    dim: int
    rank: int
    n_clients: int
    participants: int
    counts: Array
    variances: Array
    weights: Array
    message_variance: float = 0.0
    compression: float = 0.0
    shared_mask: bool = False

    @classmethod
    def checked(
        cls,
        n_clients: int,
        rank: int,
        dim: int,
        n_samples: int | npt.ArrayLike,
        noise_std: float | npt.ArrayLike = 0.0,
        participants: int | None = None,
        weights: npt.ArrayLike | None = None,
        message_noise_std: float = 0.0,
        compression: float = 0.0,
        shared_mask: bool = False,
        *,
        near: bool = False,
        still: bool = False,
    ) -> Clients:
        """Check the arguments of a prediction for `n_clients` clients and exact heads of `rank` dimensions.

        If `near`, d may be below 2k. If `still`, the clients may have at most k samples; their messages are then 0, as
        with the formal value m = k.
        """
        counts = check_counts("n_samples", n_samples)
        if still and np.max(counts) <= rank:
            counts = rank
        for client, count in enumerate(counts if isinstance(counts, tuple) else ()):
            if count < rank + 2:
                raise ValueError(f"n_samples[{client}] = {count} must be at least rank + 2 = {rank + 2}")
        moving = not (still and counts == rank)
        dim, _, participants = checked_sizes(
            dim, rank, n_clients, int(np.max(counts)), participants, exact_heads=moving, near=near
        )
        variances = np.square(check_noise_stds(noise_std, n_clients))
        relative = np.ones(()) if weights is None else np.array(check_weights("weights", weights))
        values = {"n_samples": np.array(counts, dtype=float), "weights": relative / relative.mean()}
        for name, array in values.items():
            if array.ndim and len(array) != n_clients:
                raise ValueError(
                    f"{name} has {len(array)} numbers, but must have one for each of the n_clients = {n_clients} "
                    "clients"
                )
        return cls(
            dim=dim,
            rank=rank,
            n_clients=n_clients,
            participants=participants,
            counts=_common(values["n_samples"]),
            variances=_common(np.asarray(variances, dtype=float)),
            weights=_common(values["weights"]),
            message_variance=check_noise_std(message_noise_std, "message_noise_std") ** 2,
            compression=check_number("compression", compression, minimum=0.0),
            shared_mask=check_bool("shared_mask", shared_mask),
        )

    @property
    def differ(self) -> bool:
        """True if clients have own numbers of samples, noise levels or weights."""
        return any(each.ndim for each in (self.counts, self.variances, self.weights))

    def some(self, block: slice) -> Clients:
        """Return the numbers of some clients, for sums over all of them."""
        counts, variances, weights = (
            each[block] if each.ndim else each for each in (self.counts, self.variances, self.weights)
        )
        return replace(self, counts=counts, variances=variances, weights=weights)

    @property
    def share(self) -> float:
        """`set_share` of these clients and participants."""
        return set_share(self.n_clients, self.participants)

    @property
    def fitted(self) -> Array:
        """``c = 1 - k/m``, the share of the residual that the heads leave."""
        return np.asarray(1.0 - self.rank / self.counts)

    @property
    def spare(self) -> Array:
        """``nu = m - k - 1``."""
        return np.asarray(self.counts - self.rank - 1.0)

    @property
    def gain(self) -> Array:
        """``omega^2 c/(p m)``, the factor of the variance that samples add."""
        return np.asarray(self.weights**2 * self.fitted / (self.participants * self.counts))


def _common(values: Array) -> Array:
    """Return one number () for equal numbers of all clients."""
    return np.asarray(values[0]) if values.ndim and np.ptp(values) == 0 else values


class StepTooLargeError(ValueError):
    """Error of a recursion that has no correct digits left in a round.

    Attributes
    ----------
    step_size : float
        Step size of the round, along the mean gradient.
    number : int
        Number of the round.
    things : str
        What the step size is too large for.
    advice : str
        What to do, if it is known.
    """

    def __init__(self, step_size: float, number: int, things: str, advice: str = "") -> None:
        told = f"step_size = {step_size:.4g} is too large for {things}: no correct digits are left in round {number}"
        super().__init__(f"{told}; {advice}" if advice else told)
        self.step_size, self.number, self.things, self.advice = step_size, number, things, advice

    def __reduce__(self) -> tuple[type[StepTooLargeError], tuple[float, int, str, str]]:
        return StepTooLargeError, (self.step_size, self.number, self.things, self.advice)

    def in_units(self, unit: float) -> StepTooLargeError:
        """Return the error with the step size in another unit."""
        return StepTooLargeError(self.step_size / unit, self.number, self.things, self.advice)


def checked_steps(step_size: float | npt.ArrayLike, n_rounds: int) -> tuple[float, ...]:
    """Return the step size of each round; raise `SizeError` if there are too many for a recursion."""
    n_rounds = check_integer("n_rounds", n_rounds, minimum=0)
    check_fits(10.0 * n_rounds, f"a recursion of n_rounds = {n_rounds}", "use fewer rounds")
    kept = checked_step_size("step_size", step_size)
    if callable(kept):
        raise ValueError(f"step_size = {short_repr(kept)} must be a positive finite number, or one for each round")
    return (kept,) * n_rounds if isinstance(kept, float) else checked_rounds(kept, n_rounds)[:n_rounds]


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
        check_orthonormal(name, basis, value)
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
