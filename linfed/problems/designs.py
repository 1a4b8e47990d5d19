"""Distributions of the samples x: isotropic sub-Gaussian designs (FedRep paper, Assumption 1), optionally anisotropic.

Each of the four designs has mean 0 and identity covariance, and is sub-Gaussian. A `covariance` other than None
replaces x by ``L x`` with ``L L' = covariance``, so that x is no longer isotropic as the theorems assume. It may differ
between clients. The risk takes the covariance into account.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator, Indices
from linfed._values import ByValue, declared_last
from linfed.checks import check_array, check_choice, short_repr


@dataclass(frozen=True, kw_only=True)
class Design(ByValue, ABC):
    """Distribution of x in R^d with mean 0; base class of the four built-in designs and of custom ones.

    Parameters
    ----------
    covariance : None, float, array_like (d,), (d, d) or (n, d, d), optional
        Covariance of x: None for the identity, a positive number for a multiple of it, a vector for a diagonal, or a
        full symmetric positive semi-definite matrix. Three axes are one such matrix for each client.

    Raises
    ------
    ValueError
        If the covariance has another shape, is not symmetric, or has a negative eigenvalue, or if a number or a vector
        is not positive. Problems also raise, when they are created, if it is not for their d dimensions (and n
        clients).

    Notes
    -----
    A custom design is a subclass that implements `draw`; its parameters are further fields. Designs are equal if all
    their fields are. If x is standard Gaussian before the covariance is applied, set ``standard_gaussian = True``: it
    enables the engines that are exact in distribution for Gaussian x. A subclass of `Gaussian` that draws samples in
    another way must set this attribute again.

    **Deviations**: the covariance is an addition of this project.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import linfed as lf
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Laplace(lf.Design):
    ...     '''Independent Laplace coordinates, of variance 1.'''
    ...
    ...     def draw(self, rng, out):
    ...         out[...] = rng.laplace(scale=0.5**0.5, size=out.shape)
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, design=Laplace())
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FreshSamples(10), n_rounds=100)
    >>> result.engine, bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
    ('explicit', True)
    """

    covariance: npt.ArrayLike | None = None
    name: ClassVar[str] = ""
    standard_gaussian: ClassVar[bool] = False
    """True if x is standard Gaussian before the covariance is applied."""

    def __post_init__(self) -> None:
        if self.covariance is None:
            return
        value = check_array("covariance", self.covariance, [(), ("d",), ("d", "d"), ("n", "d", "d")])
        if value.ndim < 2 and np.any(value <= 0):
            raise ValueError(f"covariance = {short_repr(self.covariance)} must be positive")
        if value.ndim >= 2:
            unit = 1e-8 * np.abs(value).max(axis=(-2, -1), keepdims=True)
            if value.shape[-2] != value.shape[-1] or not np.all(
                np.abs(value - value.mT) <= unit + 1e-5 * np.abs(value)
            ):
                wanted = "a symmetric (d, d) matrix" if value.ndim == 2 else "symmetric (d, d) matrices, one per client"
                raise ValueError(f"covariance of shape {value.shape} must be {wanted}")
            lowest = np.linalg.eigvalsh(value)[..., 0]
            negative = lowest < -1e-10 * np.trace(value, axis1=-2, axis2=-1)
            if np.any(negative):
                least = float(np.min(lowest))
                raise ValueError(f"covariance must be positive semi-definite, but has the eigenvalue {least:.3g}")
        value.setflags(write=False)
        object.__setattr__(self, "covariance", value)
        object.__setattr__(self, "_root", _covariance_root(value))

    def check_sizes(self, dim: int, n_clients: int) -> None:
        """Raise a ValueError unless the covariance has dimension `dim`, and `n_clients` matrices if per client."""
        shape = np.shape(self.covariance) if self.covariance is not None else ()
        if shape and shape[-1] != dim:
            raise ValueError(f"covariance has shape {shape}, expected d = dim = {dim} on each axis")
        if self.per_client and shape[0] != n_clients:
            raise ValueError(f"covariance has shape {shape}, expected one matrix for each of n_clients = {n_clients}")

    @property
    def per_client(self) -> bool:
        """Whether clients have separate covariances."""
        return np.ndim(self.covariance) == 3  # type: ignore[arg-type]  # None has no axes

    def fill(self, rng: Generator, out: Array) -> None:
        """Write consecutive samples into the contiguous array `out`, (..., d), or (n, m, d) with n covariances."""
        self.draw(rng, out)
        if self.covariance is not None:
            out[...] = self.shape_rows(out)

    def fill_clients(self, rng: Generator, out: Array, clients: Indices) -> None:
        """Write consecutive samples of the clients (c,) into the contiguous array `out`, (c, m, d)."""
        if self.per_client:
            self.draw(rng, out)
            out[...] = self.shape_clients(out, clients)
        else:
            self.fill(rng, out)

    def shape_rows(self, rows: Array) -> Array:
        """Return ``rows @ L'``, (..., d), which gives isotropic rows the covariance ``L L'``.

        With a covariance per client, rows are (n, m, d).
        """
        if self.covariance is None:
            return rows
        root: Array = self._root  # type: ignore[attr-defined]
        return rows @ root.mT if root.ndim >= 2 else rows * root

    def shape_clients(self, rows: Array, clients: Indices) -> Array:
        """Return ``rows @ L_i'`` for rows (c, m, d) of clients (c,), or (T, p, m, d) of clients (T, p)."""
        root: Array = self._root  # type: ignore[attr-defined]
        return rows @ root[clients].mT if self.per_client else self.shape_rows(rows)

    @property
    def variance(self) -> float | None:
        """Variance c if the covariance is ``c I`` for all clients; otherwise None."""
        if self.covariance is None:
            return 1.0
        if self.per_client:
            return None
        value = np.asarray(self.covariance)
        first = float(value.flat[0])
        isotropic = np.array_equal(value, first * np.eye(len(value)) if value.ndim == 2 else np.full_like(value, first))
        return first if isotropic else None

    def root_apply(self, M: Array) -> Array:
        """Return ``L' M`` for M (..., d, c), for the quadratic form ``||L' M v||^2 = v' M' Cov M v`` of the risk.

        With a covariance per client, M is (..., n, d, c).
        """
        if self.covariance is None:
            return M
        root: Array = self._root  # type: ignore[attr-defined]
        return root.mT @ M if root.ndim >= 2 else root[..., None] * M

    def root_solve(self, M: Array) -> Array:
        """Return ``L'^+ M`` for M (..., d, c), the matrix without a null-space part that `root_apply` maps to M.

        The covariance must be common.
        """
        if self.covariance is None:
            return M
        root: Array = self._root  # type: ignore[attr-defined]
        if root.ndim < 2:
            return M / root[..., None]
        squares = np.square(root).sum(axis=0)[:, None]  # the columns of L are orthogonal
        return np.asarray(root @ np.divide(M, squares, out=np.zeros_like(M), where=squares > 0))

    def whiten(self, messages: Array, clients: Indices) -> Array:
        """Return ``Cov_i^{-1} g_i`` for messages g_i (T, p, d) of the clients (T, p)."""
        if self.covariance is None:
            return messages
        value = np.asarray(self.covariance)
        if value.ndim < 2:
            return messages / value
        return np.linalg.solve(value[clients] if value.ndim == 3 else value, messages[..., None])[..., 0]

    @abstractmethod
    def draw(self, rng: Generator, out: Array) -> None:
        """Write consecutive samples of mean 0 and covariance I into the contiguous array `out`, (..., d).

        Read values from `rng` in order, sample by sample, so that the samples do not depend on how a stream is divided
        into blocks.
        """


def _covariance_root(covariance: Array) -> Array:
    """Return R with ``R R' = covariance``, or the square roots of variances."""
    if covariance.ndim < 2:
        return np.asarray(np.sqrt(covariance))
    values, vectors = np.linalg.eigh(covariance)
    # The square root of an eigenvalue that is only a rounding error would be about 1e-8, so such eigenvalues become 0.
    tiny = values.shape[-1] * np.finfo(float).eps * values[..., -1:]
    return np.asarray(vectors * np.sqrt(np.where(values > tiny, values, 0.0))[..., None, :])


@dataclass(frozen=True, kw_only=True)
class Gaussian(Design):
    """Standard Gaussian samples, as in the papers' experiments.

    Parameters
    ----------
    covariance : None, float, array_like (d,), (d, d) or (n, d, d), optional
        Covariance of x, the identity by default; see `Design`.

    Raises
    ------
    ValueError
        As in `Design`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, design=lf.Gaussian(covariance=2.0))
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.15), problem, data=lf.FreshSamples(10), n_rounds=100)
    >>> result.engine, bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
    ('projected', True)
    """

    name: ClassVar[str] = "gaussian"
    standard_gaussian: ClassVar[bool] = True

    def draw(self, rng: Generator, out: Array) -> None:
        """Write consecutive samples into `out`, (..., d)."""
        rng.standard_normal(out=out)


@dataclass(frozen=True, kw_only=True)
class Rademacher(Design):
    """Samples of independent signs: every coordinate is +1 or -1 with equal probability.

    Parameters
    ----------
    covariance : None, float, array_like (d,), (d, d) or (n, d, d), optional
        Covariance of x, the identity by default; see `Design`.

    Raises
    ------
    ValueError
        As in `Design`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, design=lf.Rademacher())
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FreshSamples(10), n_rounds=100)
    >>> result.engine, bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
    ('explicit', True)
    """

    name: ClassVar[str] = "rademacher"

    def draw(self, rng: Generator, out: Array) -> None:
        """Write consecutive samples into `out`, (..., d)."""
        rng.random(out=out)
        np.copyto(out, np.where(out < 0.5, -1.0, 1.0))


@dataclass(frozen=True, kw_only=True)
class UniformCube(Design):
    """Samples of independent coordinates, uniform on [-sqrt(3), sqrt(3)].

    Parameters
    ----------
    covariance : None, float, array_like (d,), (d, d) or (n, d, d), optional
        Covariance of x, the identity by default; see `Design`.

    Raises
    ------
    ValueError
        As in `Design`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, design=lf.UniformCube())
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FreshSamples(10), n_rounds=100)
    >>> result.engine, bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
    ('explicit', True)
    """

    name: ClassVar[str] = "cube"

    def draw(self, rng: Generator, out: Array) -> None:
        """Write consecutive samples into `out`, (..., d)."""
        rng.random(out=out)
        out -= 0.5
        out *= math.sqrt(12.0)


@dataclass(frozen=True, kw_only=True)
class UniformSphere(Design):
    """Samples uniform on the sphere of radius sqrt(d), with uncorrelated but dependent coordinates.

    Parameters
    ----------
    covariance : None, float, array_like (d,), (d, d) or (n, d, d), optional
        Covariance of x, the identity by default; see `Design`.

    Raises
    ------
    ValueError
        As in `Design`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, design=lf.UniformSphere())
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, data=lf.FreshSamples(10), n_rounds=100)
    >>> result.engine, bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
    ('explicit', True)
    """

    name: ClassVar[str] = "sphere"

    def draw(self, rng: Generator, out: Array) -> None:
        """Write consecutive samples into `out`, (..., d)."""
        rng.standard_normal(out=out)
        lengths = np.sqrt(np.vecdot(out, out))
        out *= (math.sqrt(out.shape[-1]) / lengths)[..., None]


LAWS: dict[str, type[Design]] = {law.name: law for law in (Gaussian, Rademacher, UniformCube, UniformSphere)}


def as_design(value: Design | str) -> Design:
    """Return a design, or the design of a name (``"gaussian"``, ``"rademacher"``, ``"cube"``, ``"sphere"``)."""
    if isinstance(value, Design):
        return value
    if isinstance(value, type):
        room = "lf." if value in LAWS.values() else ""
        raise ValueError(f"design = {short_repr(value)} is a class: write {room}{value.__name__}()")
    return LAWS[check_choice("design", value, LAWS)]()


def is_gaussian(design: Design) -> bool:
    """Return True if x is ``L g`` with g standard Gaussian and ``L L'`` the covariance, equal for all clients.

    The attribute ``standard_gaussian`` counts only if no subclass overrides the sampling methods without setting it.
    """
    return (
        not design.per_client
        and design.standard_gaussian
        and declared_last(type(design), "standard_gaussian", ("draw", "fill", "shape_rows", "root_apply"))
    )
