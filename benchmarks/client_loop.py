"""Round against a loop over clients, written in NumPy from the paper's pseudocode.

The loop follows Algorithm 2 line by line: each client draws its batch from ``default_rng()`` (or uses its fixed data),
solves for its head with ``lstsq``, and adds its gradient. The rows marked as information compare the round with the
fastest loop found. It uses the normal equations instead of ``lstsq`` (they fail for m < k and square the condition
number), the faster generator of linfed and, if faster, one draw for all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from benchmarks.ours import NOISE_STD, STEP_SIZE, Size, round_of_fedrep
from benchmarks.timing import Measurement, Row, Settings, Target, fastest, interleaved, repeated

SIZE = Size(1000, 20, 2, 10)

Heads = Callable[[Any, Any], Any]


def normal_equations(Z: Any, y: Any) -> Any:
    return np.linalg.solve(Z.T @ Z, Z.T @ y)


def lstsq(Z: Any, y: Any) -> Any:
    return np.linalg.lstsq(Z, y, rcond=None)[0]


def gradient_of_client(X: Any, y: Any, B: Any, heads: Heads) -> Any:
    Z = X @ B
    w = heads(Z, y)
    return (X.T @ (Z @ w - y))[:, None] * w


class Loop:
    """FedRep in a loop over clients; it keeps the representation from round to round."""

    def __init__(self, size: Size, rng: np.random.Generator) -> None:
        self._size, self._rng = size, rng
        B_star = np.linalg.qr(self._rng.standard_normal((size.d, size.k)))[0]
        self._phi = self._rng.standard_normal((size.n, size.k)) @ B_star.T
        self._X, self._y = self._drawn()

    def _drawn(self) -> tuple[Any, Any]:
        n, d, m = self._size.n, self._size.d, self._size.m
        X, noise = self._rng.standard_normal((n, m, d)), self._rng.standard_normal((n, m))
        return X, (X @ self._phi[:, :, None])[..., 0] + NOISE_STD * noise

    def work(self, draw: str, heads: Heads) -> Callable[[], None]:
        """Return a function for one round; `draw` is "by client", "at once" (all clients in one call) or "fixed"."""
        n, d, k, m = self._size.n, self._size.d, self._size.k, self._size.m
        B = np.linalg.qr(self._rng.standard_normal((d, k)))[0]

        def one_round() -> None:
            nonlocal B
            gradient = np.zeros((d, k))
            if draw == "by client":
                for i in range(n):
                    X = self._rng.standard_normal((m, d))
                    y = X @ self._phi[i] + NOISE_STD * self._rng.standard_normal(m)
                    gradient += gradient_of_client(X, y, B, heads)
            else:
                all_X, all_y = (self._X, self._y) if draw == "fixed" else self._drawn()
                for X, y in zip(all_X, all_y, strict=True):
                    gradient += gradient_of_client(X, y, B, heads)
            B = np.linalg.qr(B - STEP_SIZE / (n * m) * gradient)[0]

        return one_round


def against_pseudocode(size: Size, kind: Literal["fresh", "fixed"], settings: Settings) -> Measurement:
    loop = Loop(size, np.random.default_rng(0))
    work = loop.work("by client" if kind == "fresh" else "fixed", lstsq)
    return interleaved(
        round_of_fedrep(size, kind, settings.seconds), repeated(work, settings.seconds), settings.repetitions
    )


def against_fastest(size: Size, kind: Literal["fresh", "fixed"], settings: Settings) -> Measurement:
    loop = Loop(size, np.random.Generator(np.random.SFC64(0)))
    draws = ("by client", "at once") if kind == "fresh" else ("fixed",)
    rounds = {(draw, heads): loop.work(draw, heads) for draw in draws for heads in (normal_equations, lstsq)}
    draw, heads = best = fastest(rounds)
    return interleaved(
        round_of_fedrep(size, kind, settings.seconds),
        repeated(rounds[best], settings.seconds),
        settings.repetitions,
        note=f"loop: data {draw}, heads by {heads.__name__}",
    )


ROWS = [
    Row(
        f"{kind} round against {what} over clients",
        str(SIZE),
        Target("least", least),
        lambda settings, measure=measure, kind=kind: measure(SIZE, kind, settings),
        information=measure is against_fastest,
    )
    for what, measure in (("a loop", against_pseudocode), ("the fastest loop", against_fastest))
    for kind, least in (("fresh", 8), ("fixed", 25))
]
