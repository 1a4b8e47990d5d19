"""Numbers of clients or samples from shares."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Indices


def rounded_share(share: float, count: Array | Indices | int) -> Array:
    """Return ``floor(share * count + 1/2)`` in spite of rounding errors: 0.29 of 50 is 14.5, which gives 15."""
    product = share * np.asarray(count, dtype=float)
    return np.minimum(count, np.floor(product + 0.5 + 2.0**-50 * (product + 1.0)))
