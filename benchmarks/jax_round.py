"""Round against a jitted JAX round on the CPU, in float64, with one dispatch per round, on all cores and on one.

The JAX round has several implementations (solver of the heads, order of the products, generator); the fastest at each
size counts. On fixed samples, each must have linfed's B after some rounds.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np

import linfed as lf
from benchmarks.ours import NOISE_STD, STEP_SIZE, Size, round_of_fedrep
from benchmarks.timing import (
    CORES,
    Measurement,
    NotMeasuredError,
    Row,
    Settings,
    Target,
    fastest,
    interleaved,
    one_core,
    repeated,
)

CHECKED, TOLERANCE = 3, 1e-10
"""Number of rounds after which both sides must have the same B up to the signs of its columns, and tolerance."""

LEAST = {(200, 1000, 5, 100): 0.55, (1000, 200, 5, 50): 0.7}
"""Target ratios for fixed samples by n, d, k and m; at small sizes a round is a few dozen calls of NumPy."""

SIZES = Size(100, 20, 2, 10), Size(1000, 10, 2, 5), Size(200, 1000, 5, 100), Size(1000, 200, 5, 50)
SOLVERS = "solve", "cho_solve", "unrolled"
PRODUCTS = "flat", "by client"
GENERATORS = "threefry2x32", "rbg"


def solved(gram: Any, moment: Any, solver: str) -> Any:
    """Return the solution of one client's k x k normal equations."""
    import jax.numpy as jnp
    from jax.scipy.linalg import cho_solve

    if solver == "solve":
        return jnp.linalg.solve(gram, moment)
    if solver == "cho_solve":
        return cho_solve((jnp.linalg.cholesky(gram), True), moment)
    # Explicit elimination: mapped over clients, XLA compiles it to a few fused loops instead of n calls of LAPACK.
    rows = [[*gram[i], moment[i]] for i in range(len(moment))]
    for i, j in itertools.combinations(range(len(rows)), 2):
        factor = rows[j][i] / rows[i][i]
        rows[j] = [b - factor * a for a, b in zip(rows[i], rows[j], strict=True)]
    w: list[Any] = []
    for i in reversed(range(len(rows))):
        known = sum(a * b for a, b in zip(rows[i][i + 1 : -1], reversed(w), strict=True))
        w.append((rows[i][-1] - known) / rows[i][i])
    return jnp.stack(w[::-1])


def step(B: Any, X: Any, y: Any, *, solver: str, products: str) -> Any:
    """Return B after one round on the samples X (n, m, d), y (n, m)."""
    import jax
    import jax.numpy as jnp

    n, m, d = X.shape
    Z = X @ B if products == "by client" else (X.reshape(n * m, d) @ B).reshape(n, m, -1)
    W = jax.vmap(lambda Z, y: solved(Z.T @ Z, Z.T @ y, solver))(Z, y)
    residual = jnp.einsum("nmk,nk->nm", Z, W) - y
    if products == "by client":
        gradient = jax.vmap(lambda X, r: X.T @ r)(X, residual).T @ W
    else:
        gradient = X.reshape(n * m, d).T @ (residual[..., None] * W[:, None]).reshape(n * m, -1)
    return jnp.linalg.qr(B - STEP_SIZE / (n * m) * gradient)[0]


def drawn(key: Any, B_star: Any, W_star: Any, m: int) -> tuple[Any, Any]:
    """Return fresh samples and labels, drawn on the device."""
    import jax
    import jax.numpy as jnp

    (n, k), d = W_star.shape, B_star.shape[0]
    for_x, for_noise = jax.random.split(key)
    X = jax.random.normal(for_x, (n, m, d))
    clean = jnp.einsum("nmk,nk->nm", (X.reshape(n * m, d) @ B_star).reshape(n, m, k), W_star)
    return X, clean + NOISE_STD * jax.random.normal(for_noise, (n, m))


def rounds(size: Size, kind: Literal["fresh", "fixed"]) -> dict[str, Callable[[], None]]:
    """Return the variants of a round, each with its own B (and key), after checking those on fixed samples."""
    import jax

    jax.config.update("jax_enable_x64", True)
    problem = lf.SharedRepresentation(n_clients=size.n, dim=size.d, rank=size.k, noise_std=NOISE_STD)
    algorithm = lf.FedRep(rank=size.k, step_size=STEP_SIZE, init="random")
    ours = lf.iterate(algorithm, problem, data=lf.FixedSamples(size.m), n_rounds=CHECKED, engine="explicit")
    start = next(ours)
    truth = problem.truth(0, range(1))
    B, B_star, W_star = start.after.B[0], truth.B[0], truth.W[0]
    steps = list(ours)
    samples = [np.array(part[0]) for part in (steps[0].batch.X, steps[0].batch.y)]
    wanted = steps[-1].after.B[0]

    def way(solver: str, products: str, generator: str) -> Callable[[], None]:
        move = functools.partial(step, solver=solver, products=products)
        device = [jax.device_put(array) for array in (B, B_star, W_star)]
        key = jax.random.key(0, impl=generator)
        held = [jax.device_put(array) for array in samples] if kind == "fixed" else ()

        @jax.jit
        def fresh(key: Any, B: Any, B_star: Any, W_star: Any) -> tuple[Any, Any]:
            key, now = jax.random.split(key)
            return key, move(B, *drawn(now, B_star, W_star, size.m))

        fixed = jax.jit(move)
        current = device[0]

        def one_round() -> None:
            nonlocal current, key
            if kind == "fixed":
                current = fixed(current, *held)
            else:
                key, current = fresh(key, current, *device[1:])
            current.block_until_ready()

        if kind == "fixed":
            for _ in range(CHECKED):
                one_round()
            found = np.asarray(current)
            difference = np.abs(found * np.sign((found * wanted).sum(axis=0)) - wanted).max()
            assert difference < TOLERANCE, f"{size}, {solver}, {products}: B differs from ours by {difference:.2g}"
        return one_round

    ways = itertools.product(SOLVERS, PRODUCTS, GENERATORS if kind == "fresh" else GENERATORS[:1])
    return {", ".join(names): way(*names) for names in ways}


def measured(size: Size, kind: Literal["fresh", "fixed"], alone: bool, settings: Settings) -> Measurement:
    """Measure against the fastest JAX round; both sides on all cores, or on one core if `alone`."""
    if importlib.util.find_spec("jax") is None:
        raise NotMeasuredError("pip install linfed[bench]")
    ways = rounds(size, kind)
    with one_core() if alone else nullcontext():
        best = fastest(ways)
        return interleaved(
            round_of_fedrep(size, kind, settings.seconds),
            repeated(ways[best], settings.seconds),
            settings.repetitions,
            note=f"JAX: {best}",
        )


ROWS = [
    Row(
        f"{kind} round against jitted JAX, {CORES[alone]}",
        str(size),
        Target("least", 1 if kind == "fresh" else LEAST.get((size.n, size.d, size.k, size.m), 1)),
        lambda s, size=size, kind=kind, alone=alone: measured(size, kind, alone, s),
        information=alone or (kind == "fixed" and (size.n, size.d, size.k, size.m) not in LEAST),
    )
    for kind in ("fresh", "fixed")
    for size in SIZES
    for alone in (False, True)
]
