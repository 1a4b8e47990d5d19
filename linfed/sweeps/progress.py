"""How far a sweep is: cells weighed by what they cost, costs by measured seconds, and what that says is left."""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from tqdm.std import tqdm

from linfed._types import Array
from linfed.cells.run import Run
from linfed.errors import check_progress, is_real
from linfed.tables.grid import Cell, fields_of

SIZES = ("trials", "rounds", "n_clients", "dim")
"""Fields whose product weighs a cell that tells no cost of its own."""

SLOPE, CERTAINTY = 0.5, 2.0
"""The exponent of seconds in a weight while nothing is known, and the squares of logarithms that it counts for."""

OFTEN = 0.2
"""Seconds between two looks of the bar."""

FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"


def cost_of(cell: Cell) -> float:
    """Return what a cell says that it costs, in a unit of its class's own; 0 where it says nothing."""
    cost = getattr(cell, "cost", 0.0)
    return float(cost) if is_real(cost) and cost == cost else 0.0


def weight_of(cell: Cell) -> float:
    """Return what a cell weighs among those of its class: its cost, its estimated seconds, or the product of sizes."""
    cost = cost_of(cell)
    if 0 < cost < math.inf:
        return cost
    if isinstance(cell, Run):
        with suppress(ValueError, TypeError):  # of a tuning, which says so when it runs
            return cell.seconds()
    sizes = [value for name, value in fields_of(cell) if name in SIZES and is_real(value) and 0 < value < math.inf]
    return math.prod(map(float, sizes))


class Work:
    """The work of a sweep: which cells are open, and what those that have ended say of their seconds.

    Parameters
    ----------
    cells : dict of int to Cell
        The cells to be run, by their place.
    workers : int or None
        How many run at a time; None where nobody knows, and what was finished in how long must tell.

    Notes
    -----
    In a class of cells ``seconds = a weight^b``: a cost is good for an order, and small cells take longer than their
    share of it. The exponent b is that of least squares in logarithms, drawn to `SLOPE` where the cells that have
    ended, the long ones first, are much alike; a is such that their seconds add up. Of a class of which nothing has
    ended, each cell takes the mean of all that have.
    """

    def __init__(self, cells: dict[int, Cell], workers: int | None) -> None:
        self.workers = workers
        self.open = {place: (type(cell), weight_of(cell)) for place, cell in cells.items()}
        self.ended: dict[type, list[tuple[float, float]]] = defaultdict(list)
        self.spent = 0.0

    def known(self, cell: Cell, seconds: float) -> None:
        """Take the seconds of a cell that an earlier run has finished."""
        self.ended[type(cell)].append((weight_of(cell), seconds))

    def finished(self, place: int, seconds: float) -> None:
        """Take the seconds of a cell that is finished now."""
        kind, weight = self.open.pop(place)
        self.ended[kind].append((weight, seconds))
        self.spent += seconds

    def failed(self, place: int) -> None:
        """Take a cell that raised: it is no longer open, and says nothing of the others."""
        del self.open[place]

    def left(self, elapsed: float) -> float | None:
        """Return the seconds that are left after so many; None before any cell has ended.

        What the workers have put into cells that have not ended is taken off.
        """
        if not self.open:
            return 0.0
        if not self.ended:
            return None
        mean = float(np.mean([seconds for pairs in self.ended.values() for _, seconds in pairs]))
        total = 0.0
        for kind in {kind for kind, _ in self.open.values()}:
            weights = np.array([weight for own, weight in self.open.values() if own is kind])
            total += _predicted(self.ended[kind], weights) if kind in self.ended else mean * len(weights)
        workers = self.workers or max(1.0, self.spent / elapsed if elapsed else 1.0)
        begun = max(0.0, workers * elapsed - self.spent)
        return max(0.0, total - begun) / min(workers, len(self.open))


def _predicted(ended: list[tuple[float, float]], weights: Array) -> float:
    """Return the seconds that cells of these weights take together, by those of their class that have ended."""
    known, seconds = np.array(ended).T
    x, y = np.log(known), np.log(np.maximum(seconds, 1e-4))
    x -= x.mean()
    slope = (x @ (y - y.mean()) + CERTAINTY * SLOPE) / (x @ x + CERTAINTY)
    shape = known ** max(slope, 0.0)
    return float(seconds.sum() / shape.sum() * np.sum(weights ** max(slope, 0.0)))


class Bar:
    """The progress bar of a sweep: the share of the work that is done, cells, and about how long it still takes.

    Parameters
    ----------
    label : str
        Text before the bar.
    wanted : dict of int to Cell
        The cells to be run, by their place.
    known : sequence of (Cell, float)
        Cells of an earlier run, with their seconds.
    done, total : int
        Cells that are there, and all of them.
    workers : int or None
        How many run at a time, if somebody knows.
    progress : bool or None
        Whether to show it; None shows it on a terminal only.
    """

    def __init__(
        self,
        label: str,
        wanted: dict[int, Cell],
        known: Sequence[tuple[Cell, float]],
        *,
        done: int,
        total: int,
        workers: int | None,
        progress: bool | None,
    ) -> None:
        self.done, self.total = done, total
        self.started, self.looked = time.monotonic(), 0.0
        self.work: Work | None = None
        if not is_shown(progress):
            return
        self.work = Work(wanted, workers)
        for cell, seconds in known:
            self.work.known(cell, seconds)
        self.tqdm = tqdm(total=1.0, desc=label, bar_format=FORMAT)
        self._show(self.work)

    def finished(self, place: int, cells: int, seconds: float) -> None:
        """Take a place that is finished, with all the cells that are equal to it."""
        if self.work is not None:
            self.work.finished(place, seconds)
            self.done += cells
            self.tick()

    def failed(self, place: int, cells: int) -> None:
        """Take a place that raised."""
        if self.work is not None:
            self.work.failed(place)
            self.done += cells
            self.tick()

    def tick(self) -> None:
        """Look at the clock, and show what it says if that was some time ago."""
        if self.work is not None and time.monotonic() - self.looked > OFTEN:
            self._show(self.work)

    def close(self) -> None:
        """Show the end."""
        if self.work is not None:
            self._show(self.work)
            self.tqdm.close()

    def _show(self, work: Work) -> None:
        self.looked = time.monotonic()
        elapsed = self.looked - self.started
        left = work.left(elapsed)
        told = f"{self.done} of {self.total} cell{'s' * (self.total != 1)}"
        if self.done >= self.total:
            self.tqdm.n = 1.0
        elif left is not None:
            share = elapsed / (elapsed + left) if elapsed + left else 0.0
            self.tqdm.n = max(self.tqdm.n, min(share, 0.99))
            told += f", {about(left)} left"
        self.tqdm.set_postfix_str(told, refresh=False)
        self.tqdm.refresh()


def is_shown(progress: bool | None) -> bool:
    """Return whether progress is to be shown: on a terminal only, where it is None."""
    return not check_progress(progress)


def say(label: str, what: str, progress: bool | None = None) -> None:
    """Say on standard error what is done now, where a progress bar would be shown."""
    if is_shown(progress):
        print(f"{label}: {what}", file=sys.stderr, flush=True)


def about(seconds: float) -> str:
    """Return a time as one says it, e.g. ``about 4 min``."""
    if seconds < 1:
        return "about 1 s"
    if seconds < 90:
        return f"about {seconds if seconds < 10 else 5 * round(seconds / 5):.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
