"""What a projected round is made of: a basis, labels, messages and pseudo-samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from linfed._types import Array


class Frame(NamedTuple):
    """An orthonormal basis in which labels and messages are told.

    `P` (T, d, k + q) spans B first and the truth's part outside it next; `R` (T, k, k) are the coordinates of B, and
    `star` (T, k + q, r) those of B*. For a truth that is not low-rank `P` has k columns only, and `star` is None.
    """

    P: Array
    R: Array
    star: Array | None


class Labels(NamedTuple):
    """A block's labels ``y = Z a + tau v`` and what they owe to the part outside B, clients last.

    `a` (t, k, c) and `e` (t, q, c) are the coordinates of phi_i in B's span and outside it, `tau` (t, c).
    """

    a: Array
    e: Array
    tau: Array


class Message(NamedTuple):
    """Sums over clients of ``X_i'r_i w_i'`` at unit weights: inside the basis (T, k + q or d, k), and the Gram matrix
    ``sum_i ||r_i||^2 w_i w_i'`` (T, k, k) of the rest."""  # noqa: D205, D209

    inside: Array
    gram: Array


class Pseudo(NamedTuple):
    """A block's pseudo-samples: columns of rows of (t, c), None for zeros.

    `Z0` are the features on the orthonormal basis, `Z` those at B, `v` what the labels `y` have beside them; `g` is the
    Gaussian part (t, q, c) outside.
    """

    labels: Labels
    Z0: list[list[Array | None]]
    Z: list[list[Array | None]]
    v: list[Array]
    y: list[Array]
    g: Array


def summed(pairs: Iterable[tuple[Array | None, Array | None]]) -> Array | None:
    """Return the sum of the products of pairs, leaving out those with a zero; None if there are no others."""
    total: Array | None = None
    for one, other in pairs:
        if one is not None and other is not None:
            total = one * other if total is None else total + one * other
    return total
