"""Progress of a sweep: the remaining time, estimated from the cells' costs and the run times of finished cells."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from tqdm.std import tqdm

from linfed._types import Array
from linfed.cells.run import Run
from linfed.checks import check_progress, is_real
from linfed.tables.grid import Cell, fields_of

SIZES = ("trials", "rounds", "n_clients", "dim")
"""Fields whose product is the weight of a cell without an attribute ``cost``."""

SLOPE, CERTAINTY = 0.5, 2.0
"""Prior exponent of run time against weight; strength of the prior, as a sum of squared log weights."""

OFTEN, SELDOM = 0.2, 1.0
"""Minimum and maximum number of seconds between two updates of the bar."""

FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"


def cost_of(cell: Cell) -> float:
    """Return a cell's attribute ``cost``, in a unit that depends on its class; 0 if it has none."""
    cost = getattr(cell, "cost", 0.0)
    return float(cost) if is_real(cost) and cost == cost else 0.0


def weight_of(cell: Cell) -> float:
    """Return a cell's weight within its class: its cost, its estimated run time, or a product of sizes."""
    cost = cost_of(cell)
    if 0 < cost < math.inf:
        return cost
    if isinstance(cell, Run):
        with suppress(ValueError, TypeError):  # an invalid tuning raises when it runs
            return cell.seconds()
    sizes = [value for name, value in fields_of(cell) if name in SIZES and is_real(value) and 0 < value < math.inf]
    return math.prod(map(float, sizes))


class WorkEstimate:
    """Estimate of a sweep's remaining time, from the unfinished cells and the run times of the finished ones.

    Parameters
    ----------
    cells : dict of int to Cell
        The cells to run, by index.
    workers : int or None
        Number of cells that run at the same time. If None, it is estimated from the total run time of the finished
        cells and the elapsed time.

    Notes
    -----
    The model for a class of cells is ``seconds = a weight^b``, because small cells take longer than their share of the
    cost. The exponent b is fitted by least squares in logarithms. It is shrunk towards `SLOPE` if the finished cells,
    the long ones first, have similar weights. The factor a is such that the finished cells' seconds add up. If no cell
    of a class has finished, each of its cells is expected to take the mean time of all finished cells.
    """

    def __init__(self, cells: dict[int, Cell], workers: int | None) -> None:
        self.workers = workers
        self.open = {place: (type(cell), weight_of(cell)) for place, cell in cells.items()}
        self.ended: dict[type, list[tuple[float, float]]] = defaultdict(list)
        self.spent = 0.0

    def add_timing(self, cell: Cell, seconds: float) -> None:
        """Add the run time of a cell that an earlier sweep has finished."""
        self.ended[type(cell)].append((weight_of(cell), seconds))

    def finished(self, place: int, seconds: float) -> None:
        """Add the run time of a cell that has finished now."""
        kind, weight = self.open.pop(place)
        self.ended[kind].append((weight, seconds))
        self.spent += seconds

    def failed(self, place: int) -> None:
        """Remove a cell that raised; its run time is not used."""
        del self.open[place]

    def left(self, elapsed: float) -> float | None:
        """Return the remaining seconds after `elapsed` seconds; None before any cell has finished.

        Time that the workers have already spent on unfinished cells is subtracted.
        """
        if not self.open:
            return 0.0
        if not self.ended:
            return None
        mean = float(np.mean([seconds for pairs in self.ended.values() for _, seconds in pairs]))
        total = 0.0
        for kind in {kind for kind, _ in self.open.values()}:
            weights = np.array([weight for other, weight in self.open.values() if other is kind])
            total += _predicted(self.ended[kind], weights) if kind in self.ended else mean * len(weights)
        workers = self.workers or max(1.0, self.spent / elapsed if elapsed else 1.0)
        begun = max(0.0, workers * elapsed - self.spent)
        return max(0.0, total - begun) / min(workers, len(self.open))


def _predicted(ended: list[tuple[float, float]], weights: Array) -> float:
    """Predict the total seconds of cells with these weights from finished (weight, seconds) pairs of their class."""
    past_weights, seconds = np.array(ended).T
    x, y = np.log(past_weights), np.log(np.maximum(seconds, 1e-4))
    x -= x.mean()
    slope = (x @ (y - y.mean()) + CERTAINTY * SLOPE) / (x @ x + CERTAINTY)
    shape = past_weights ** max(slope, 0.0)
    return float(seconds.sum() / shape.sum() * np.sum(weights ** max(slope, 0.0)))


class ProgressBar:
    """Progress bar of a sweep: the share of the work that is done, the number of cells, and the remaining time.

    Parameters
    ----------
    label : str
        Text before the bar.
    wanted : dict of int to Cell
        The cells to run, by index.
    timings : sequence of (Cell, float)
        Cells of earlier sweeps, with their seconds.
    done, total : int
        Number of finished cells, and of all cells.
    workers : int or None
        Number of cells that run at the same time, if known.
    progress : bool or None
        If True, show the bar. None shows it on a terminal only.
    """

    def __init__(
        self,
        label: str,
        wanted: dict[int, Cell],
        timings: Sequence[tuple[Cell, float]],
        *,
        done: int,
        total: int,
        workers: int | None,
        progress: bool | None,
    ) -> None:
        self.done, self.total = done, total
        self.started, self.looked = time.monotonic(), 0.0
        self.work: WorkEstimate | None = None
        self.lock, self.closed = threading.RLock(), threading.Event()
        if not is_shown(progress):
            return
        self.work = WorkEstimate(wanted, workers)
        for cell, seconds in timings:
            self.work.add_timing(cell, seconds)
        self.tqdm = tqdm(total=1.0, desc=label, bar_format=FORMAT)
        self._show(self.work)
        threading.Thread(target=self._keep_moving, daemon=True).start()

    def finished(self, place: int, cells: int, seconds: float) -> None:
        """Count a cell that has finished, `cells` times if equal cells occur several times."""
        if self.work is not None:
            with self.lock:
                self.work.finished(place, seconds)
                self.done += cells
            self.tick()

    def failed(self, place: int, cells: int) -> None:
        """Count a cell that raised, `cells` times if equal cells occur several times."""
        if self.work is not None:
            with self.lock:
                self.work.failed(place)
                self.done += cells
            self.tick()

    def tick(self) -> None:
        """Update the bar if the last update was more than `OFTEN` seconds ago."""
        if self.work is not None and time.monotonic() - self.looked > OFTEN:
            self._show(self.work)

    def close(self) -> None:
        """Update the bar a last time and close it."""
        if self.work is not None:
            with self.lock:
                self.closed.set()
                self._show(self.work)
                self.tqdm.close()

    def _keep_moving(self) -> None:
        """Update the bar every `SELDOM` seconds, also while no cell finishes."""
        while not self.closed.wait(SELDOM):
            with self.lock:
                if self.work is not None and not self.closed.is_set():
                    self._show(self.work)

    def _show(self, work: WorkEstimate) -> None:
        with self.lock:
            self.looked = time.monotonic()
            elapsed = self.looked - self.started
            left = work.left(elapsed)
            text = f"{self.done} of {self.total} cell{'s' * (self.total != 1)}"
            if self.done >= self.total:
                self.tqdm.n = 1.0
            elif left is not None:
                share = elapsed / (elapsed + left) if elapsed + left else 0.0
                self.tqdm.n = max(self.tqdm.n, min(share, 0.99))
                text += f", {format_duration(left)} left"
            self.tqdm.set_postfix_str(text, refresh=False)
            self.tqdm.refresh()


def is_shown(progress: bool | None) -> bool:
    """Return whether to show progress; None shows it on a terminal only."""
    return not check_progress(progress)


def log_status(label: str, what: str, progress: bool | None = None) -> None:
    """Print a status line on standard error, if a progress bar would be shown."""
    if is_shown(progress):
        print(f"{label}: {what}", file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Format a duration approximately, e.g. ``about 4 min``."""
    if seconds < 1:
        return "about 1 s"
    if seconds < 90:
        return f"about {seconds if seconds < 10 else 5 * round(seconds / 5):.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
