"""Round of FLUTE on fixed data, against a loop over clients and against a jitted JAX round with one dispatch per round.

All sides start from the same B and W and use the same data. Before the timing, they must have the same B and W after
some rounds. The loop follows Algorithm 1, written in plain NumPy; the rows marked as information compare with the
fastest loop found. JAX keeps its state on the device, and the fastest of several implementations counts. It uses the
same form of the data as linfed (rows for m <= d, the Gram matrices ``A_i``, ``b_i`` for m > d), or, in rows marked as
information, any form.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from benchmarks.ours import NOISE_STD, Size, round_of
from benchmarks.timing import Measurement, NotMeasuredError, Row, Settings, Side, Target, fastest, interleaved, repeated
from linfed.data.sources import draw_fixed
from linfed.simulation.job import checked_job

ROUNDS = 10_000
"""Number of rounds of a realistic run, for which "auto" selects the engine (compression pays only in long runs)."""

CHECKED, TOLERANCE = 20, 1e-9
"""Number of rounds after which both sides must have the same B and W, and tolerance relative to the largest entry."""

GAMMA1, GAMMA2 = 0.25, 0.125


@dataclass(frozen=True)
class Case:
    """Sizes, ground truth, data and initialisation for both sides."""

    size: Size
    trials: int = 1

    def __str__(self) -> str:
        return f"{self.size}, {self.trials} trials" if self.trials > 1 else str(self.size)

    @property
    def step_size(self) -> float:
        """Step size that is small enough for convergence, since the server sums over clients."""
        return 0.1 / self.size.n

    @functools.cached_property
    def start(self) -> tuple[Any, Any]:
        """Initial B and W of the size of the solution, so that all terms matter from the first round on."""
        rng, (n, d, k) = np.random.default_rng(0), (self.size.n, self.size.d, self.size.k)
        return rng.standard_normal((self.trials, d, k)) / np.sqrt(d), rng.standard_normal((self.trials, n, k))

    @property
    def problem(self) -> lf.UnderParameterized:
        """Ground truth."""
        return lf.UnderParameterized(n_clients=self.size.n, dim=self.size.d, noise_std=NOISE_STD)

    @functools.cached_property
    def samples(self) -> tuple[Any, Any]:
        """Samples X (T, n, m, d) and y (T, n, m) of seed 0."""
        trials = range(self.trials)
        return draw_fixed(self.problem.truth(0, trials), (self.size.n, self.size.m, self.size.d), 0, trials)

    @functools.cached_property
    def algorithm(self) -> lf.FLUTE:
        """Algorithm of linfed's side."""
        return lf.FLUTE(rank=self.size.k, step_size=self.step_size, init=self.start)

    @functools.cached_property
    def engine(self) -> str:
        """Return the engine that "auto" selects for a run of `ROUNDS` rounds."""
        data = lf.FixedSamples(self.size.m)
        job = checked_job(self.algorithm, self.problem, data, ROUNDS, 1.0, self.trials, 0, [], ROUNDS, "auto")
        return job.engine

    def ours(self, seconds: float) -> Side:
        """Return linfed's side."""
        return round_of(
            self.algorithm, self.problem, lf.FixedSamples(self.size.m), seconds, self.engine, trials=self.trials
        )


class Rounds:
    """Competitor's side: consecutive rounds with their B and W."""

    def __init__(self, B: Any, W: Any, step: Callable[[Any, Any], tuple[Any, Any]], wait: bool = False) -> None:
        self.B, self.W, self._step, self._wait = B, W, step, wait

    def __call__(self) -> None:
        """Run one round."""
        self.B, self.W = self._step(self.B, self.W)
        if self._wait:  # both come from one dispatch
            self.B.block_until_ready()

    def some(self, count: int) -> None:
        """Run several rounds."""
        for _ in range(count):
            self()


def check(case: Case, ways: dict[str, Rounds]) -> None:
    """Raise an error unless every variant has the same B and W as linfed after `CHECKED` rounds."""
    result = lf.simulate(
        case.algorithm,
        case.problem,
        data=lf.FixedSamples(case.size.m),
        n_rounds=CHECKED,
        trials=case.trials,
        engine=case.engine,
        metrics=[],
    )
    for name, way in ways.items():
        way.some(CHECKED)
        for mine, its in ((result.final.B, way.B), (result.final.W, way.W)):
            difference = np.abs(mine - np.reshape(its, mine.shape)).max() / np.abs(mine).max()
            assert difference < TOLERANCE, f"{case}: {name} differs from ours by {difference:.2g}"


def compared(case: Case, ways: dict[str, Rounds], settings: Settings, what: str) -> Measurement:
    """Measure linfed's round against the fastest variant."""
    check(case, ways)
    size = case.size
    few = 1 + min(100, 5_000_000 // (case.trials * size.n * size.m * size.d))  # one turn then lasts some ms
    best = fastest({name: functools.partial(way.some, few) for name, way in ways.items()})
    other = ways[best]
    found = interleaved(
        case.ours(settings.seconds),
        repeated(other, settings.seconds),
        settings.repetitions,
        note=f"ours: {case.engine}; {what}: {best}",
    )
    assert np.isfinite(other.B).all()
    assert np.isfinite(other.W).all()
    return found


# --- the loop over clients -----------------------------------------------------------------------------------


def pseudocode(case: Case) -> Rounds:
    """Return the loop as in Algorithm 1."""
    (X,), (y,) = case.samples
    n, m, _ = X.shape
    eta = case.step_size

    def step(B: Any, W: Any) -> tuple[Any, Any]:
        gradient = np.zeros_like(B)
        W_plus = np.empty_like(W)
        for i in range(n):
            G = X[i].T @ (X[i] @ B @ W[i] - y[i]) / m
            gradient += np.outer(G, W[i])
            W_plus[i] = W[i] - eta * (B.T @ G)
        B_plus = B - eta * gradient
        return (
            B_plus + eta * (2 * GAMMA1 * B @ (W.T @ W) - 4 * GAMMA2 * B @ (B.T @ B)),
            W_plus + eta * (2 * GAMMA1 * W @ (B.T @ B) - 4 * GAMMA2 * W @ (W.T @ W)),
        )

    return Rounds(*(part[0] for part in case.start), step)


def fast_loop(case: Case, form: str) -> Rounds:
    """Return a loop over clients that contains only the products with each client's matrices."""
    (X,), (y,) = case.samples
    n, m, d = X.shape
    eta = case.step_size
    G, residual = np.empty((n, d)), np.empty(m)
    A, b = (X.mT @ X / m, (y[:, None] @ X)[:, 0] / m) if form == "Gram" else (None, None)
    # Attributes are looked up only once, not in every round.
    rows = list(zip(X, y, G, strict=True)) if A is None else list(zip(A, G, strict=True))
    dot, subtract = np.dot, np.subtract

    def step(B: Any, W: Any) -> tuple[Any, Any]:
        theta = W @ B.T
        if A is None:
            for (X_i, y_i, G_i), theta_i in zip(rows, theta, strict=True):
                dot(X_i, theta_i, out=residual)
                subtract(residual, y_i, out=residual)
                dot(residual, X_i, out=G_i)
            np.divide(G, m, out=G)
        else:
            for (A_i, G_i), theta_i in zip(rows, theta, strict=True):
                dot(A_i, theta_i, out=G_i)
            subtract(G, b, out=G)
        # For gamma_1 = 2 gamma_2 both regularisers are products with one matrix.
        unbalanced = 4 * GAMMA2 * eta * (B.T @ B - W.T @ W)
        return B - eta * (G.T @ W) - B @ unbalanced, W - eta * (G @ B) + W @ unbalanced

    return Rounds(*(part[0] for part in case.start), step)


def against_pseudocode(case: Case, settings: Settings) -> Measurement:
    return compared(case, {"as in Algorithm 1": pseudocode(case)}, settings, "loop")


def against_fastest(case: Case, settings: Settings) -> Measurement:
    forms = ("rows", "Gram") if case.size.m > case.size.d else ("rows",)
    return compared(case, {form: fast_loop(case, form) for form in forms}, settings, "loop")


# --- JAX -----------------------------------------------------------------------------------------------------

Messages = Callable[..., Any]
"""Returns ``X_i'(X_i theta_i - y_i)/m``, (C, d), from theta (C, d), B, W and data; C are clients of all trials."""


def row_ways() -> dict[str, Messages]:
    """Return implementations of the messages from samples X (C, m, d), y (C, m)."""
    import jax
    import jax.numpy as jnp

    def einsum(theta: Any, B: Any, W: Any, X: Any, y: Any) -> Any:
        return jnp.einsum("cmd,cm->cd", X, jnp.einsum("cmd,cd->cm", X, theta) - y) / y.shape[1]

    def matmul(theta: Any, B: Any, W: Any, X: Any, y: Any) -> Any:
        residual = (X @ theta[..., None])[..., 0] - y
        return (residual[:, None] @ X)[:, 0] / y.shape[1]

    def mapped(theta: Any, B: Any, W: Any, X: Any, y: Any) -> Any:
        return jax.vmap(lambda theta, X, y: X.T @ (X @ theta - y) / len(y))(theta, X, y)

    def sums(theta: Any, B: Any, W: Any, X: Any, y: Any) -> Any:
        residual = (X * theta[:, None]).sum(-1) - y
        return (X * residual[..., None]).sum(-2) / y.shape[1]

    def features(theta: Any, B: Any, W: Any, X: Any, y: Any) -> Any:
        trials, n, k = W.shape
        Z = X.reshape(trials, -1, X.shape[-1]) @ B
        residual = (Z.reshape(trials * n, -1, k) * W.reshape(trials * n, 1, k)).sum(-1) - y
        return jnp.einsum("cmd,cm->cd", X, residual) / y.shape[1]

    return {"einsum": einsum, "matmul": matmul, "vmap": mapped, "sums": sums, "(X B) w": features}


def gram_ways(d: int) -> dict[str, Messages]:
    """Return implementations of the messages from A (C, d, d), b (C, d)."""
    import jax
    import jax.numpy as jnp

    def einsum(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:
        return jnp.einsum("cde,ce->cd", A, theta) - b

    def matmul(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:
        return (A @ theta[..., None])[..., 0] - b

    def mapped(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:
        return jax.vmap(lambda theta, A, b: A @ theta - b)(theta, A, b)

    def sums(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:
        return (A * theta[:, None]).sum(-1) - b

    def column_sums(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:
        return (A * theta[..., None]).sum(-2) - b

    def features(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:
        trials, n, k = W.shape
        Z = A.reshape(trials, -1, A.shape[-1]) @ B
        return (Z.reshape(trials * n, -1, k) * W.reshape(trials * n, 1, k)).sum(-1) - b

    ways = {"einsum": einsum, "matmul": matmul, "vmap": mapped, "sums": sums, "(A B) w": features}
    # From d = 150 on, jitted with the product for theta before it, JAX 0.10.2 on a CPU gets these sums wrong.
    return {**ways, "column sums": column_sums} if d <= 128 else ways


def clients_last(form: str) -> Messages:
    """Return implementations for data with clients as the last axis, as one fused sum over long vectors."""

    def rows(theta: Any, B: Any, W: Any, X: Any, y: Any) -> Any:  # X (m, d, C), y (m, C)
        residual = (X * theta.T).sum(1) - y
        return (X * residual[:, None]).sum(0).T / len(y)

    def gram(theta: Any, B: Any, W: Any, A: Any, b: Any) -> Any:  # A (d, d, C), b (d, C)
        return ((A * theta.T[:, None]).sum(0) - b).T

    return rows if form == "rows" else gram


def jax_rounds(case: Case, forms: tuple[str, ...]) -> dict[str, Rounds]:
    """Return the variants of a round for some forms of the data, each with its own B and W."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    eta, m = case.step_size, case.size.m
    X, y = (part.reshape(-1, *part.shape[2:]) for part in case.samples)

    def step(messages: Messages, B: Any, W: Any, *data: Any) -> tuple[Any, Any]:
        theta = W @ jnp.swapaxes(B, -1, -2)
        G = messages(theta.reshape(-1, theta.shape[-1]), B, W, *data).reshape(theta.shape)
        unbalanced = 4 * GAMMA2 * eta * (jnp.swapaxes(B, -1, -2) @ B - jnp.swapaxes(W, -1, -2) @ W)
        return B - eta * (jnp.swapaxes(G, -1, -2) @ W) - B @ unbalanced, W - eta * (G @ B) + W @ unbalanced

    found: dict[str, Rounds] = {}
    for form in forms:
        data = (X, y) if form == "rows" else (X.mT @ X / m, (y[:, None] @ X)[:, 0] / m)
        held = [jax.device_put(part) for part in data]
        turned = [jax.device_put(np.ascontiguousarray(np.moveaxis(part, 0, -1))) for part in data]
        ways = {name: (way, held) for name, way in (row_ways() if form == "rows" else gram_ways(X.shape[-1])).items()}
        ways["clients last"] = clients_last(form), turned
        for name, (messages, arrays) in ways.items():
            move = jax.jit(functools.partial(step, messages))
            bound = functools.partial(lambda B, W, move, arrays: move(B, W, *arrays), move=move, arrays=arrays)
            start = (jax.device_put(part) for part in case.start)
            found[f"{form}, {name}"] = Rounds(*start, bound, wait=True)
    return found


def against_jax(case: Case, any_form: bool, settings: Settings) -> Measurement:
    if importlib.util.find_spec("jax") is None:
        raise NotMeasuredError("pip install linfed[bench]")
    asked = "Gram" if case.size.m > case.size.d else "rows"
    ways = jax_rounds(case, ("rows", "Gram") if any_form else (asked,))
    return compared(case, ways, settings, "JAX")


# --- a whole run ---------------------------------------------------------------------------------------------

WHOLE, SECONDS = Size(100, 100, 5, 10**5), 60.0


def whole_run(record_every: int, settings: Settings) -> Measurement:
    """Measure one call of `lf.simulate` with `ROUNDS` rounds against a limit of 60 s."""
    if not settings.full:
        raise NotMeasuredError("takes half a minute: --full")
    algorithm = lf.FLUTE(rank=WHOLE.k, step_size=0.1 / WHOLE.n)
    problem = lf.UnderParameterized(n_clients=WHOLE.n, dim=WHOLE.d, noise_std=NOISE_STD)
    started = time.perf_counter()
    result = lf.simulate(
        algorithm, problem, data=lf.FixedSamples(WHOLE.m), n_rounds=ROUNDS, record_every=record_every, engine="auto"
    )
    seconds = time.perf_counter() - started
    assert lf.Status.DIVERGED not in result.status
    return Measurement([1e3 * seconds], [1e3 * SECONDS], note=f"ours: {result.engine}; other: 60 s")


LOOPED = (
    Size(50, 30, 10, 20),
    Size(100, 50, 5, 40),
    Size(100, 100, 5, 70),
    Size(200, 100, 5, 80),
    Size(200, 200, 5, 100),
)
JITTED = (
    Case(Size(30, 10, 2, 12)),
    Case(Size(30, 10, 2, 8), trials=50),
    Case(Size(30, 10, 2, 20), trials=50),
    Case(Size(100, 100, 5, 101)),
    Case(Size(200, 200, 5, 100)),
)

# A case holds its samples from its first use on, so every row makes its own.
ROWS = [
    *(
        Row(
            f"FLUTE round against {what} over clients",
            str(size),
            Target("least", 0.95),
            lambda s, measure=measure, size=size: measure(Case(size), s),
            information=measure is against_pseudocode,
        )
        for what, measure in (("a loop", against_pseudocode), ("the fastest loop", against_fastest))
        for size in LOOPED
    ),
    *(
        Row(
            f"FLUTE round against jitted JAX in {'any' if any_form else 'the same'} form",
            str(case),
            Target("least", 0.6 if case.trials > 1 and case.size.m <= case.size.d else 1),
            lambda s, case=case, any_form=any_form: against_jax(Case(case.size, case.trials), any_form, s),
            information=any_form,
        )
        for any_form in (False, True)
        for case in JITTED
    ),
    *(
        Row(
            f"FLUTE, {ROUNDS} rounds, metrics {'each round' if every == 1 else f'every {every} rounds'}",
            str(WHOLE),
            Target("most", 1),
            lambda s, every=every: whole_run(every, s),
        )
        for every in (1, 100)
    ),
]
