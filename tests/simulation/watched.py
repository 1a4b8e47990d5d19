"""An algorithm that keeps what a run shows to it."""

from dataclasses import dataclass, field

import linfed as lf


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(lf.Algorithm):
    """An algorithm that runs another one and keeps what it was shown, or looks in every few rounds only."""

    inner: lf.Algorithm
    every: int = 1
    active: list = field(default_factory=list)
    seen: list = field(default_factory=list)

    def initial_state(self, start):
        return self.inner.initial_state(start)

    def step(self, state, batch, rng):
        self.active.append(batch.active.copy())
        if len(self.active) % self.every:
            return state
        self.seen.append([part.copy() for part in batch.normal_equations()])
        return self.inner.step(state, batch, rng)

    def floats_per_trial(self, *, n_clients, dim, participants):
        return self.inner.floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)
