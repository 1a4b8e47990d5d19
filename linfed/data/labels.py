"""Labels of a round's samples, from the ground truth of the participants and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices
from linfed.numerics.linalg import take_clients
from linfed.problems import Truth


@dataclass(frozen=True, kw_only=True)
class LabelLaw:
    """Ground truth of a round's participants and the noise of their labels.

    Parameters
    ----------
    B : ndarray (T, d, r) or None
    W : ndarray (T, p, r) or None
    S : ndarray (T, p, d) or None
    noise : ndarray (T, p, m) or None
        Label noise, already multiplied by its standard deviation.
    """

    B: Array | None
    W: Array | None
    S: Array | None
    noise: Array | None

    def labels(self, t: slice, c: slice, rows: Array, stars: Array) -> Array:
        """Return the labels (m, C), clients last, of samples (t, c, m, d) with features ``X B*``, (r, m, C)."""
        count, m = rows.shape[0] * rows.shape[1], rows.shape[2]
        y = np.zeros((m, count)) if self.noise is None else self.noise[t, c].reshape(count, m).T.copy()
        if self.W is not None:
            W = self.W[t, c].reshape(count, -1)
            if count == 1:  # computed twice, as NumPy sums a single column in another order
                stars, W = np.repeat(stars, 2, axis=-1), np.repeat(W, 2, axis=0)
            y += np.einsum("rmc,cr->mc", stars, W)[:, :count]
        if self.S is not None:
            y += (rows @ self.S[t, c, :, None]).reshape(count, m).T
        return y


def restricted(truth: Truth, active: Indices, noise: Array | None, trial: int | None = None) -> LabelLaw:
    """Return the `LabelLaw` of the participants (T, p), or of the participants (1, p) of one trial."""
    B, W, S = truth.B, truth.W, truth.S
    if trial is not None:
        B, W, S = (None if part is None else part[trial : trial + 1] for part in (B, W, S))
    W = None if W is None else take_clients(W, active)
    S = None if S is None else take_clients(S, active)
    return LabelLaw(B=B, W=W, S=S, noise=noise)
