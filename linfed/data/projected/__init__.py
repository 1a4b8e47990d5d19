"""Projected batches: for fresh Gaussian samples, draw only the quantities that a step at one shared B uses.

Given B, a step depends on a client's samples through three quantities:

- the features ``Z = X Q`` on an orthonormal basis Q of B's span;
- the part v of the labels that Z does not explain;
- the message ``X'r``, where r is the residual.

Their joint distribution is known exactly. The m rows of ``[Z, v]`` are replaced by the triangular factor of their Gram
matrix (Bartlett), at most k + 1 *pseudo-samples*. Outside the span of B and of the ground truth the sum of all clients'
messages is one Gaussian matrix. The cost does not depend on m, and for a ground truth in factors no array has the shape
(n, d). docs/exact-law.md derives the distribution.

With classes each sample keeps its label and k numbers, so the cost depends on m, but not on m d (`classes`).
"""

from __future__ import annotations

from linfed.data.projected.classes import ProjectedClassSource, ProjectedHeldOut
from linfed.data.projected.features import KEPT_VALUES
from linfed.data.projected.source import ProjectedSource

__all__ = ["KEPT_VALUES", "ProjectedClassSource", "ProjectedHeldOut", "ProjectedSource"]
