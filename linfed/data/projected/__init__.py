"""The projected batch: fresh Gaussian samples that are never drawn, only what a step at one shared B can see of them.

Given B, a client's samples enter a step through their features ``Z = X Q`` on an orthonormal basis Q of B's span, the
part v of the labels that Z does not explain, and the message ``X'r``. The joint law of all three is known exactly: the
m rows of ``[Z, v]`` are replaced by the triangular factor of their Gram matrix (Bartlett), at most k + 1
*pseudo-samples*; outside the span of B and of the truth the messages of all clients together are one Gaussian matrix.
The cost does not depend on m, and for a truth in factors nothing has the shape (n, d). docs/exact-law.md derives the
law.
"""

from __future__ import annotations

from linfed.data.projected.features import KEPT_VALUES
from linfed.data.projected.source import ProjectedSource

__all__ = ["KEPT_VALUES", "ProjectedSource"]
