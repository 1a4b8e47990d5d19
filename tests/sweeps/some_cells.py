"""Cells that several files of tests run, also in other processes, which import this module faster than a test."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import linfed as lf

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5),
    problem=lf.SharedRepresentation(n_clients=12, dim=6, rank=2, noise_std=0.1),
    data=lf.FreshSamples(n_samples=5),
    n_rounds=6,
    trials=3,
)
TUNED = replace(RUN, algorithm=lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.01, 0.3, 9.0)}, trials=2))
CELLS = [*lf.grid(RUN, **{"data.n_samples": (3, 5), "problem.n_clients": (12, 20)}), TUNED]

RAN = []
"""The numbers of the `Square` cells that this process has computed since the test began."""


@dataclass(frozen=True)
class Square:
    number: int
    fails: bool = False
    seed: int = 0

    def run(self):
        RAN.append(self.number)
        if self.fails:
            raise RuntimeError("unlucky")
        return {"value": self.number**2, "each": np.arange(3.0) * self.number}


def values(table):
    return [row["value"] for row in table]


def computed(cells, store=None, **options):
    """Return the numbers of the cells that a sweep computes, in its order."""
    RAN.clear()
    lf.sweep(cells, store=store, **options)
    return RAN[:]


@dataclass(frozen=True)
class Waits:
    """Tells by files who computes it, and ends its process the first times that it is asked to."""

    folder: str
    number: int
    seconds: float = 0.0
    deaths: int = 0

    def run(self):
        log = Path(self.folder, f"ran-{self.number}")
        with log.open("a") as file:
            file.write(f"{os.getpid()} ")
        if len(log.read_text().split()) <= self.deaths:
            os._exit(1)
        time.sleep(self.seconds)
        return {"value": self.number, "pid": os.getpid()}

    def times(self):
        return len(Path(self.folder, f"ran-{self.number}").read_text().split())


class OddError(Exception):
    """An error that cannot be sent: it comes back with one argument, and takes two."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@dataclass(frozen=True)
class Raises:
    number: int

    def run(self):
        if self.number == 1:
            raise OddError("this", "that")
        return {"value": self.number}
