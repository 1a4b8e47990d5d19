"""Cells that other processes compute: in a module of their own, for what imports pytest takes them as long again."""

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import linfed as lf

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5),
    problem=lf.SharedRepresentation(n_clients=12, dim=6, rank=2, noise_std=0.1),
    data=lf.FreshSamples(n_samples=5),
    rounds=6,
    trials=3,
)
TUNED = replace(RUN, algorithm=lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.01, 0.3, 9.0)}, trials=2))
CELLS = [*lf.grid(RUN, **{"data.n_samples": (3, 5), "problem.n_clients": (12, 20)}), TUNED]


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
