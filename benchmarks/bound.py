"""Rounds with explicit samples against lower bounds.

The bound of a round on fresh samples is its random numbers and its two matrix products. It draws the same number of
normals as the round, with the same kind of generator, and computes ``[B, B*]' X'`` and ``V X``, without heads, labels
and QR. It is measured with several block sizes, with one or two passes over X, and with several layouts of the
products; the fastest variant counts. With one pass, only one block of X is in memory.

The bound of a round on fixed data is one reading of the data, by one core or by all, whichever is faster: of the
samples, or of the Gram matrices that FLUTE keeps for m > d.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks import flute
from benchmarks.ours import Size, round_of_fedrep
from benchmarks.timing import Measurement, Row, Settings, Side, Target, fastest, interleaved, repeated
from linfed.numerics.threads import thread_count

SIZES = Size(200, 1000, 5, 100), Size(1000, 200, 5, 50)
SMALL = Size(100, 20, 2, 10), Size(1000, 10, 2, 5), Size(1000, 20, 2, 10)
BLOCK_VALUES = 2**13, 2**15, 2**16, 2**17, 2**18, 2**21
"""Numbers of values of X in a block, from the size of the L1 cache to far beyond the L2 cache."""

Choice = tuple[int, bool, str]
"""Rows in a block, True for one pass over X, and order of the factors in the products."""


class Bound:
    """Unavoidable work of one round, in several variants."""

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
        """Yield the variants."""
        for rows in sorted({min(self._rows, max(1, values // self._d)) for values in (*BLOCK_VALUES, self._X.size)}):
            for layout in ("coefficients first", "samples first"):
                for once in (True, False):
                    if not (once and rows == self._rows):
                        yield rows, once, layout

    def work(self, choice: Choice) -> Callable[[], object]:
        """Return a function that does the work of a round in one variant."""
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


def against_reading(ours: Side, floats: int, settings: Settings) -> Measurement:
    """Measure a round against the squared length of its data, which reads each float once."""
    values, threads = np.random.default_rng(0).standard_normal(floats), thread_count()
    parts = np.array_split(values, threads)
    with ThreadPoolExecutor(threads) as pool:
        ways: dict[str, Callable[[], object]] = {
            "one core": lambda: values @ values,
            "all cores": lambda: list(pool.map(lambda part: part @ part, parts)),
        }
        best = fastest(ways)
        note = f"{8e-6 * floats:.3g} MB, {best}"
        return interleaved(ours, repeated(ways[best], settings.seconds), settings.repetitions, note=note)


def fixed_samples(size: Size, settings: Settings) -> Measurement:
    return against_reading(round_of_fedrep(size, "fixed", settings.seconds), size.n * size.m * size.d, settings)


def flute_data(case: flute.Case, settings: Settings) -> Measurement:
    n, d, m = case.size.n, case.size.d, case.size.m
    return against_reading(case.ours(settings.seconds), case.trials * n * d * min(m, d), settings)


ROWS = [
    *(
        Row(
            "explicit round against its bound",
            str(size),
            Target("most", 1.25),
            lambda s, size=size: measured(size, s),
            information=size in SMALL,
        )
        for size in (*SIZES, *SMALL)
    ),
    *(
        Row(
            "fixed round against one reading of its samples",
            str(size),
            Target("most", 4),
            lambda s, size=size: fixed_samples(size, s),
            information=True,
        )
        for size in (*SIZES, *SMALL)
    ),
    *(
        Row(
            "FLUTE round against one reading of its data",
            str(case),
            Target("most", 4),
            lambda s, case=case: flute_data(flute.Case(case.size, case.trials), s),
            information=True,
        )
        for case in (flute.Case(flute.LOOPED[0]), *flute.JITTED)
    ),
]
