"""The explicit round against its bound: the normals and the two matrix products alone.

The bound draws as many normals as the round does (same kind of generator) and multiplies ``[B, B*]' X'`` and ``V X``:
no heads, no labels, no QR. It is free to choose its blocks, one or two passes over X and the layout of the products,
and it keeps nothing it need not keep: with one pass X is never larger than a block. The fastest choice is the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.ours import Size, round_of_fedrep
from benchmarks.timing import Measurement, Row, Settings, Target, fastest, interleaved, repeated

SIZES = Size(200, 1000, 5, 100), Size(1000, 200, 5, 50)
BLOCK_VALUES = 2**13, 2**15, 2**16, 2**17, 2**18, 2**21
"""Values of X in a block: from the first-level cache to far beyond the second."""

Choice = tuple[int, bool, str]
"""Rows in a block, whether X is passed over once, and which factor of the products comes first."""


class Bound:
    """Does the unavoidable work of one round in any of the ways of doing it."""

    def __init__(self, size: Size) -> None:
        rng = np.random.default_rng(0)
        self._rng = np.random.Generator(np.random.SFC64(0))
        self._rows, self._d = size.n * size.m, size.d
        self._basis = rng.standard_normal((2 * size.k, size.d))
        self._basis_columns = np.ascontiguousarray(self._basis.T)
        self._V = rng.standard_normal((size.k, self._rows))
        self._V_columns = np.ascontiguousarray(self._V.T)
        self._X = np.empty((self._rows, size.d))
        self._Z = np.empty((2 * size.k, self._rows))
        self._Z_columns = np.empty((self._rows, 2 * size.k))
        self._noise = np.empty(self._rows)

    def choices(self) -> Iterator[Choice]:
        """Yield the ways to do it."""
        for rows in sorted({min(self._rows, max(1, values // self._d)) for values in (*BLOCK_VALUES, self._X.size)}):
            for layout in ("coefficients first", "samples first"):
                for once in (True, False):
                    if not (once and rows == self._rows):
                        yield rows, once, layout

    def work(self, choice: Choice) -> Callable[[], object]:
        """Return the round's work, done this way."""
        size, once, layout = choice
        forward, back = (
            (self._forward, self._back) if layout == "coefficients first" else (self._forward_rows, self._back_rows)
        )
        blocks = [slice(start, min(start + size, self._rows)) for start in range(0, self._rows, size)]

        def in_one_pass() -> None:
            self._rng.standard_normal(out=self._noise)
            for where in blocks:
                X = self._X[: where.stop - where.start]
                self._rng.standard_normal(out=X)
                forward(X, where)
                back(X, where)

        def in_two_passes() -> None:
            self._rng.standard_normal(out=self._noise)
            for where in blocks:
                self._rng.standard_normal(out=self._X[where])
                forward(self._X[where], where)
            for where in blocks:
                back(self._X[where], where)

        return in_one_pass if once else in_two_passes

    def _forward(self, X: np.ndarray, where: slice) -> None:
        np.matmul(self._basis, X.T, out=self._Z[:, where])

    def _back(self, X: np.ndarray, where: slice) -> np.ndarray:
        return self._V[:, where] @ X

    def _forward_rows(self, X: np.ndarray, where: slice) -> None:
        np.matmul(X, self._basis_columns, out=self._Z_columns[where])

    def _back_rows(self, X: np.ndarray, where: slice) -> np.ndarray:
        return X.T @ self._V_columns[where]


def measured(size: Size, settings: Settings) -> Measurement:
    bound = Bound(size)
    best = fastest({choice: bound.work(choice) for choice in bound.choices()})
    rows, once, layout = best
    return interleaved(
        round_of_fedrep(size, "fresh", settings.seconds),
        repeated(bound.work(best), settings.seconds),
        settings.repetitions,
        note=f"bound: {rows} rows a block, {'one pass' if once else 'two passes'}, {layout}",
    )


ROWS = [
    Row("explicit round against its bound", str(size), Target("most", 1.25), lambda s, size=size: measured(size, s))
    for size in SIZES
]
