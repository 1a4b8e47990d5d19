"""Round of classification, 50 trials of 50 clients, at the sizes of scikit-learn's digits.

The round is compared with only its matrix products (`products`), batched in the fastest way, and with one jitted JAX
round. Before the timing, JAX must have the same B and W after some rounds.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

import linfed as lf
from benchmarks.ours import Size, round_of
from benchmarks.timing import (
    CORES,
    Measurement,
    NotMeasuredError,
    Row,
    Settings,
    Side,
    Target,
    fastest,
    interleaved,
    one_core,
    repeated,
)

SIZE, CLASSES, TRIALS = Size(50, 64, 8, 29), 10, 50
"""Sizes of 1797 images of 8 x 8 pixels on 50 clients, with four fifths as training samples."""

STEP_SIZE, PENALTY, HEAD_STEPS = 0.1, 0.1, 10

CHECKED, TOLERANCE = 5, 1e-9
"""Number of rounds after which both sides must have the same B and W, and tolerance relative to the largest entry."""


ALGORITHMS: dict[str, lf.Algorithm] = {
    "FedRep": lf.FedRep(rank=SIZE.k, step_size=STEP_SIZE, init="random", heads=lf.GradientHeads(steps=1)),
    "FedPer": lf.FedPer(rank=SIZE.k, step_size=STEP_SIZE),
    "FedAvg": lf.FedAvg(rank=SIZE.k, step_size=STEP_SIZE),
    "General FLUTE": lf.GeneralFLUTE(rank=SIZE.k, step_size=STEP_SIZE, collapse_penalty=PENALTY),
    "FLUTE*": lf.GeneralFLUTE(rank=SIZE.k, step_size=STEP_SIZE, collapse_penalty=PENALTY, head_steps=HEAD_STEPS),
}


def problem() -> lf.Classes:
    """Return the problem: two classes per client, and very few held-out samples."""
    return lf.Classes(n_clients=SIZE.n, n_classes=CLASSES, classes_per_client=2, dim=SIZE.d, test_samples=2)


def ours(name: str, seconds: float) -> Side:
    return round_of(ALGORITHMS[name], problem(), lf.FixedSamples(SIZE.m), seconds, "auto", trials=TRIALS)


# --- the matrix products alone -------------------------------------------------------------------------------


def products(name: str, layout: str, pooled: bool) -> Callable[[], None]:
    """Return a function that computes the matrix products of a round on arbitrary numbers.

    All algorithms need ``X_i B``, the logits, ``residual' Z_i``, ``residual H_i`` and the sum over clients of
    ``X_i'V_i``. FedRep needs the logits twice, because it updates the heads before B. General FLUTE needs ``X_i'V_i``
    of each client, unless `pooled`, and two products with (c, c) matrices for each gradient of NC, of the client and of
    the server. FLUTE* needs ``X_i B_i`` and ten times the logits, ``residual' Z_i`` and a gradient of NC. The products
    do not include biases.
    """
    rng = np.random.default_rng(0)
    n, d, k, m, c = SIZE.n, SIZE.d, SIZE.k, SIZE.m, CLASSES
    X, B, each_B = (rng.random(shape) for shape in ((TRIALS, n, m, d), (TRIALS, d, k), (TRIALS, n, d, k)))
    H, gram = rng.random((TRIALS, n, c, k)), np.empty((TRIALS, n, c, c))
    samples_first = layout == "samples first"
    residual = rng.random((TRIALS, n, m, c) if samples_first else (TRIALS, n, c, m))
    Z, V, pulled = np.empty((TRIALS, n, m, k)), np.empty((TRIALS, n, m, k)), np.empty((TRIALS, n, d, k))
    moved, summed = np.empty_like(H), np.empty_like(B)
    rows, flat_Z, flat_V = (array.reshape(TRIALS, n * m, -1) for array in (X, Z, V))
    flute, star = name in ("General FLUTE", "FLUTE*"), name == "FLUTE*"

    def heads() -> None:
        if samples_first:
            np.matmul(Z, H.mT, out=residual)
        else:
            np.matmul(H, Z.mT, out=residual)

    def by_heads() -> None:
        np.matmul(residual.mT if samples_first else residual, Z, out=moved)

    def collapse() -> None:
        np.matmul(H, H.mT, out=gram)
        np.matmul(gram, H, out=moved)

    def work() -> None:
        np.matmul(rows, B, out=flat_Z)
        heads()
        by_heads()
        if name == "FedRep":
            heads()
        np.matmul(residual if samples_first else residual.mT, H, out=V)
        if pooled:
            np.matmul(rows.mT, flat_V, out=summed)
        else:
            np.matmul(X.mT, V, out=pulled)
        if flute:
            collapse()
        if star:
            np.matmul(X, each_B, out=Z)
            for _ in range(HEAD_STEPS):
                heads()
                by_heads()
                collapse()
        if flute:
            collapse()

    return work


def against_products(name: str, settings: Settings) -> Measurement:
    layouts = ("samples first", "classes first")
    ways = {(layout, True): products(name, layout, True) for layout in layouts if name != "FLUTE*"}
    ways |= {(layout, False): products(name, layout, False) for layout in layouts}
    with one_core():
        layout, pooled = best = fastest(ways)
        return interleaved(
            ours(name, settings.seconds),
            repeated(ways[best], settings.seconds),
            settings.repetitions,
            note=f"products: {layout}, X'V {'of all clients at once' if pooled else 'client by client'}",
        )


# --- JAX -----------------------------------------------------------------------------------------------------

Round = Callable[..., tuple[Any, Any]]


def jax_round(name: str, layout: str, pooled: bool) -> Round:
    """Return the round in JAX, from B (T, d, k), W (T, n or 1, c, k + 1), X, one-hot labels and held classes."""
    import jax
    import jax.numpy as jnp

    m, k, c = SIZE.m, SIZE.k, CLASSES
    axis = -1 if layout == "samples first" else -2
    logits_of = "tpmk,tpck->tpmc" if axis == -1 else "tpmk,tpck->tpcm"
    heads_of = "tpmc,tpmk->tpck" if axis == -1 else "tpcm,tpmk->tpck"
    back_of = "tpmc,tpck->tpmk" if axis == -1 else "tpcm,tpck->tpmk"

    def residual(Z: Any, W: Any, Y: Any) -> Any:
        W = jnp.broadcast_to(W, (*Z.shape[:2], *W.shape[2:]))
        bias = W[..., None, :, k] if axis == -1 else W[..., :, k, None]
        return jax.nn.softmax(jnp.einsum(logits_of, Z, W[..., :k]) + bias, axis=axis) - Y

    def by_heads(R: Any, Z: Any) -> Any:
        bias = R.sum(-2 if axis == -1 else -1)
        return jnp.concatenate([jnp.einsum(heads_of, R, Z), bias[..., None]], axis=-1) / m

    def features(X: Any, B: Any) -> Any:
        if B.ndim == 4:
            return X @ B
        return (X.reshape(TRIALS, -1, X.shape[-1]) @ B).reshape(*X.shape[:3], k)

    def messages(X: Any, R: Any, W: Any) -> Any:
        """Return the gradient with respect to B of the mean loss, or of each client's loss."""
        H = jnp.broadcast_to(W[..., :k], (*R.shape[:2], c, k))
        V = jnp.einsum(back_of, R, H) / m
        if pooled:
            d = X.shape[-1]
            return jnp.swapaxes(X.reshape(TRIALS, -1, d), -1, -2) @ V.reshape(TRIALS, -1, k) / X.shape[1]
        return jnp.swapaxes(X, -1, -2) @ V

    def mean(B: Any) -> Any:
        return B if pooled else B.mean(1)

    def fedrep(B: Any, W: Any, X: Any, Y: Any, holds: Any) -> Any:
        Z = features(X, B)
        W = W - STEP_SIZE * by_heads(residual(Z, W, Y), Z)
        Q, R = jnp.linalg.qr(B - STEP_SIZE * mean(messages(X, residual(Z, W, Y), W)))
        return Q * jnp.where(jnp.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :], W

    def fedper(B: Any, W: Any, X: Any, Y: Any, holds: Any) -> Any:
        Z = features(X, B)
        R = residual(Z, W, Y)
        moved = W - STEP_SIZE * by_heads(R, Z)
        return B - STEP_SIZE * mean(messages(X, R, W)), moved

    def fedavg(B: Any, W: Any, X: Any, Y: Any, holds: Any) -> Any:
        B, W = fedper(B, W, X, Y, holds)
        return B, W.mean(1, keepdims=True)

    def collapse(W: Any, T: Any) -> Any:
        H = W[..., :k]
        gram = jnp.einsum("tpck,tpek->tpce", H, H)
        length = jnp.sqrt((gram * gram).sum((-2, -1), keepdims=True))
        X = gram / length
        D = X - T
        norm = jnp.sqrt((D * D).sum((-2, -1), keepdims=True))
        across = D - (D * X).sum((-2, -1), keepdims=True) * X
        return jnp.pad(2.0 * (across @ H) / (length * norm), [(0, 0)] * 3 + [(0, 1)])

    def flute(head_steps: int, B: Any, W: Any, X: Any, Y: Any, holds: Any) -> Any:
        u = holds.astype(float)
        T = u[..., :, None] * u[..., None, :] * (jnp.eye(c) - 1 / c) / np.sqrt(c - 1)
        Z = features(X, B)
        R = residual(Z, W, Y)
        G = messages(X, R, W)
        W = W - STEP_SIZE * (by_heads(R, Z) + PENALTY * collapse(W, T))
        B = (B if pooled else B[:, None]) - STEP_SIZE * G
        if head_steps:
            Z = features(X, B)
            for _ in range(head_steps):
                W = W - STEP_SIZE * (by_heads(residual(Z, W, Y), Z) + PENALTY * collapse(W, T))
        return mean(B), W - STEP_SIZE * collapse(W, T)

    return {
        "FedRep": fedrep,
        "FedPer": fedper,
        "FedAvg": fedavg,
        "General FLUTE": functools.partial(flute, 0),
        "FLUTE*": functools.partial(flute, HEAD_STEPS),
    }[name]


def jax_ways(name: str) -> dict[str, Callable[[], None]]:
    """Return the variants of a round in JAX, each with its own B and W, after checking them against linfed."""
    import jax

    jax.config.update("jax_enable_x64", True)
    rounds = lf.iterate(ALGORITHMS[name], problem(), data=lf.FixedSamples(SIZE.m), n_rounds=CHECKED, trials=TRIALS)
    start = next(rounds).after
    first = next(rounds)
    X, labels, holds = (np.array(part) for part in (first.batch.X[..., :-1], first.batch.y, first.batch.holds))  # type: ignore[attr-defined]  # of classes
    final = [first, *rounds][-1].after
    ways: dict[str, Callable[[], None]] = {}
    for layout, pooled in itertools.product(("samples first", "classes first"), (True, False)):
        if pooled and name == "FLUTE*":
            continue
        Y = np.eye(CLASSES)[labels.astype(int)]
        Y = Y if layout == "samples first" else np.ascontiguousarray(Y.mT)
        held = [jax.device_put(part) for part in (X, Y, holds)]
        step = jax.jit(jax_round(name, layout, pooled))
        state = [jax.device_put(np.array(part)) for part in (start.B, start.W)]

        def one_round(state: list[Any] = state, step: Any = step, held: list[Any] = held) -> None:
            state[:] = step(*state, *held)
            jax.block_until_ready(state)

        for _ in range(CHECKED):
            one_round()
        for mine, its in zip((final.B, final.W), state, strict=True):
            assert mine is not None
            difference = np.abs(mine - np.asarray(its)).max() / np.abs(mine).max()
            assert difference < TOLERANCE, f"{name}, {layout}, differs from ours by {difference:.2g}"
        ways[f"{layout}, X'V {'of all clients at once' if pooled else 'client by client'}"] = one_round
    return ways


def against_jax(name: str, alone: bool, settings: Settings) -> Measurement:
    """Measure against the fastest JAX round; both sides on all cores, or on one core if `alone`."""
    if importlib.util.find_spec("jax") is None:
        raise NotMeasuredError("pip install linfed[bench]")
    ways = jax_ways(name)
    with one_core() if alone else nullcontext():
        best = fastest(ways)
        return interleaved(
            ours(name, settings.seconds),
            repeated(ways[best], settings.seconds),
            settings.repetitions,
            note=f"JAX: {best}",
        )


AT = f"{SIZE} c={CLASSES}, {TRIALS} trials"

ROWS = [
    *(
        Row(
            f"classes, {name}: round against its products, {CORES[True]}",
            AT,
            Target("most", 10),
            functools.partial(against_products, name),
        )
        for name in ALGORITHMS
    ),
    *(
        Row(
            f"classes, {name}: round against jitted JAX, {CORES[alone]}",
            AT,
            Target("least", 0.8),
            functools.partial(against_jax, name, alone),
            information=alone,
        )
        for alone in (False, True)
        for name in ALGORITHMS
    ),
]
