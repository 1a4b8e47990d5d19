"""Data structures of a projected round: basis, labels, messages and pseudo-samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from linfed._types import Array


class Frame(NamedTuple):
    """Orthonormal basis of a round, in which labels and messages are expressed.

    The first k columns of `P` (T, d, k + q) span B, and the others span the rest of the ground truth. `R` (T, k, k) are
    the coordinates of B, and `star` (T, k + q, r) those of B*. For a ground truth that is not low-rank `P` has only k
    columns, and `star` is None.
    """

    P: Array
    R: Array
    star: Array | None


class Labels(NamedTuple):
    """Labels ``y = Z a + tau v`` of a block, with the clients last.

    `a` (t, k, c) and `e` (t, q, c) are the coordinates of phi_i inside and outside of B's span. `tau` (t, c) is the
    standard deviation of the part of y that Z does not explain, and `sigma` that of the noise, one or (t, c).
    """

    a: Array
    e: Array
    tau: Array
    sigma: float | Array


class Message(NamedTuple):
    """Sum over clients of ``X_i'r_i w_i'``.

    `inside` (T, k + q or k + d, k) is the part inside the basis, and `gram` (T, k, k) is the Gram matrix
    ``sum_i ||r_i||^2 w_i w_i'`` of the rest.
    """

    inside: Array
    gram: Array


class Pseudo(NamedTuple):
    """Pseudo-samples of a block, as sequences of columns; a column is a sequence of rows (t, c), with None for zeros.

    `Z0` are the features on the orthonormal basis, and `Z` the features at B. `v` is the part of the labels `y` that
    the features do not explain, and `g` (t, q, c) is the Gaussian part outside of B's span.
    """

    labels: Labels
    Z0: Sequence[Sequence[Array | None]]
    Z: Sequence[Sequence[Array | None]]
    v: list[Array]
    y: list[Array]
    g: Array


def summed(pairs: Iterable[tuple[Array | None, Array | None]]) -> Array | None:
    """Return the sum of the products of pairs without None, or None if there are no such pairs."""
    total: Array | None = None
    for one, other in pairs:
        if one is not None and other is not None:
            total = one * other if total is None else total + one * other
    return total
