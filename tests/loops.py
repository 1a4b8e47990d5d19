"""Rounds of algorithms as loops over clients, on the arrays of a state: what `worlds.LEARNERS` names for each learner.

The computations are the plain loops of `tests.references` (regression) and of `tests.algorithms.class_references`
(classification), whose functions have the same names. The functions here give these loops the arrays of a state by
name, and return the new ones. All arrays are those of one trial: B (d, k), W (n, k) or (1, k), S (n, d) or (1, d).
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import linfed as lf
from linfed.numerics.streams import Stream, TrialRandom, generators
from tests import references


@dataclass
class Round:
    """Samples and participants of a round of one trial.

    X and y have one array for each participant, in the order of `active`; `n` counts all clients, `m` is the largest
    number of samples of a client. `rng` draws what the algorithm draws in this trial. `loops` is the module with the
    loops of the loss.
    """

    X: list[np.ndarray]
    y: list[np.ndarray]
    active: np.ndarray
    number: int
    n: int
    m: int
    rng: TrialRandom
    loops: ModuleType = references

    @property
    def samples(self) -> tuple:
        """X, y and the participants."""
        return self.X, self.y, self.active


@dataclass(frozen=True)
class Loop:
    """The algorithm as a loop over clients.

    start(world, **options) returns the arrays of the state before the first round, or None if they are random.
    round(before, now, **options) returns those after a round, from those before it and a `Round`; None if the round is
    too ill-conditioned to be compared. end(before, now, **options) returns those after the clients' last fit, of
    algorithms that have one; all clients take part in it. The options are the hyper-parameters of the algorithm, but
    for rank and init. `classes` says whether it is also a loop for classification.
    """

    start: Callable[..., dict[str, np.ndarray] | None]
    round: Callable[..., dict[str, np.ndarray] | None]
    end: Callable[..., dict[str, np.ndarray]] | None = None
    classes: bool = False


def without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


# --- initial states ------------------------------------------------------------------------------------------


def own_heads(world, **options):
    return {"B": world.B, "W": world.zeros(world.n, world.k)}


def one_head(world, **options):
    return {"B": world.B, "W": world.zeros(1, world.k)}


def given_heads(world, **options):
    """Heads as `worlds.EqualHeads` has them."""
    return {"B": world.B, "W": np.full((world.n, world.k), 0.5)}


def own_models(world, **options):
    return {"S": world.zeros(world.n, world.d)}


def one_model(world, **options):
    return {"S": world.zeros(1, world.d)}


# --- representation learning ---------------------------------------------------------------------------------


def fedrep(before, now, **options):
    B, W = now.loops.fedrep_round(before["B"], before["W"], *now.samples, **options)
    return {"B": B, "W": W}


def private_fedrep(before, now, message_noise_std=0.0, **options):
    noise = message_noise_std * now.rng.standard_normal(before["B"].shape)[0] if message_noise_std else 0.0
    return fedrep(before, now, noise=noise, **options)


def compressed_fedrep(before, now, kept_share=None, levels=None, shared_mask=False, **options):
    """A round of FedRep whose mean message is off by the mean error of compression."""
    B, step_size, p = before["B"], options["step_size"], len(now.active)
    u = now.rng.uniform((1 if shared_mask else p, *B.shape))[0]
    alone = options | {"orthonormalize": False, "rotate_heads": False, "aggregate": "mean"}
    share, error = (1.0 if options.get("aggregate") == "sum" else 1.0 / p), np.zeros(B.shape)
    for place, (i, X_i, y_i) in enumerate(zip(now.active, now.X, now.y, strict=True)):
        moved, _ = references.fedrep_round(B, before["W"], [X_i], [y_i], [i], **alone)
        message = (B - moved) / step_size
        error += share * (references.compressed(message, u[place % len(u)], kept_share, levels) - message)
    return fedrep(before, now, noise=error, **options)


def shortcut(before, now, mixing=None, refit=False, **options):
    """A state has the contributions ``a w_i`` and ``c s_i`` to the predictor, the loop w_i and s_i."""
    a, c = references.factors_of(mixing)
    W, S = before["W"] / a, before["S"] / c
    B, W, S = references.shortcut_round(before["B"], W, S, *now.samples, mixing=mixing, **options)
    return {"B": B, "W": a * W, "S": c * S}


def shortcut_start(world, **options):
    return own_heads(world) | own_models(world)


def shortcut_end(before, now, **options):
    fits = [references.shortest(X_i, y_i, before["B"]) for X_i, y_i in zip(now.X, now.y, strict=True)]
    return before | {"W": np.array([w for w, _ in fits]), "S": np.array([s for _, s in fits])}


def flute(before, now, **options):
    B, W = references.flute_round(before["B"], before["W"], *now.samples, **options)
    return {"B": B, "W": W}


def tpgd(before, now, *, step_size, first_phase):
    penalty = float(now.number > first_phase)
    B, W = references.tpgd_round(before["B"], before["W"], *now.samples, step_size=step_size, penalty=penalty)
    return {"B": B, "W": W}


def general_flute(before, now, **options):
    own = [sorted({int(label) for label in y_i}) for y_i in now.y]
    B, W = now.loops.flute_round(before["B"], before["W"], *now.samples, own, **options)
    return {"B": B, "W": W}


def fedper(before, now, **options):
    B, W = now.loops.fedper_round(before["B"], before["W"], *now.samples, **options)
    return {"B": B, "W": W}


def fedbabu_start(world, *, head, **options):
    return {"B": world.B, "W": np.array(head)[None]}


def fedbabu(before, now, head, **options):
    return before | {"B": references.fedbabu_round(before["B"], before["W"][0], now.X, now.y, **options)}


def exact_end(before, now, **options):
    W = [references.least_squares(X_i @ before["B"], y_i) for X_i, y_i in zip(now.X, now.y, strict=True)]
    return before | {"W": np.array(W)}


def lgfedavg_start(world, **options):
    return {"own": np.array([world.B] * world.n), "W": world.zeros(1, world.k)}


def lgfedavg(before, now, **options):
    own, w = now.loops.lgfedavg_round(before["own"], before["W"][0], *now.samples, **options)
    return {"own": own, "W": w[None]}


def fedrod_start(world, **options):
    return one_head(world) | {"V": world.zeros(world.n, world.k)}


def fedrod(before, now, fine_tune=None, **options):
    B, w, V = now.loops.fedrod_round(before["B"], before["W"][0], before["V"], *now.samples, **options)
    return {"B": B, "W": w[None], "V": V}


def fedrod_end(before, now, *, fine_tune, step_size, **options):
    B, w, V = before["B"], before["W"][0], before["V"]
    _, _, V = now.loops.fedrod_round(B, w, V, *now.samples, personal=fine_tune, step_size=step_size)
    return before | {"V": V}


def altgdmin_start(world, step_size=None, **options):
    return own_heads(world) | ({"norm": np.zeros((1, 1))} if step_size is None else {})


def altgdmin(before, now, step_size=None, disjoint_samples=False):
    """The published step size is 0.5 / (m s^2), with the largest singular value s of the first round's averages."""
    norm = {}
    if step_size is None:
        averages = [X_i.T @ y_i / len(y_i) for X_i, y_i in zip(now.X, now.y, strict=True)]
        norm["norm"] = np.full((1, 1), np.linalg.norm(averages, 2)) if now.number == 1 else before["norm"]
        samples = [len(y_i) - len(y_i) // 2 if disjoint_samples else len(y_i) for y_i in now.y]  # those of the gradient
        step_size = 0.5 / (np.mean(samples) * norm["norm"].item() ** 2)
    B, W = references.altgdmin_round(
        before["B"], before["W"], *now.samples, step_size=step_size, disjoint_samples=disjoint_samples
    )
    return {"B": B, "W": W} | norm


def altmin(before, now, **options):
    found = references.altmin_round(before["B"], before["W"], *now.samples, **options)
    return None if found is None else dict(zip("BW", found, strict=True))


def anil_start(world, **options):
    return one_head(world) | {"shared": world.zeros(1, world.k)}


def anil(before, now, **options):
    return meta(before, now, adapts="head", **options)


def maml_start(world, **options):
    return anil_start(world) | one_model(world)


def maml(before, now, **options):
    return before | meta(before, now, adapts="both", **options)


def meta(before, now, **options):
    B, w = references.maml_round(before["B"], before["W"][0], now.X, now.y, **options)
    return {"B": B, "W": w[None], "shared": w[None]}


def anil_end(before, now, *, adaptation_step_size, **options):
    return without(maml_end(before, now, adaptation_step_size=adaptation_step_size), "S")


def maml_end(before, now, *, adaptation_step_size, **options):
    B, w = before["B"], before["W"][0]
    slopes = [references.gradient(X_i, y_i, B @ w) for X_i, y_i in zip(now.X, now.y, strict=True)]
    heads = [w - adaptation_step_size * B.T @ g for g in slopes]
    offsets = [-adaptation_step_size * g * (w @ w_i) for g, w_i in zip(slopes, heads, strict=True)]
    return before | {"W": np.array(heads), "S": np.array(offsets)}


# --- averaging -----------------------------------------------------------------------------------------------


def averaging_start(*vectors):
    """Return the start of one or two layers; of "changes" and "controls" with the clients' shares, and these at 0."""

    def start(world, *, weights="uniform", clusters=None, **options):
        state = one_model(world) if "rank" in options else one_head(world)
        size = sum(array.size for array in state.values())
        if vectors:
            counts = np.array([len(y_i) if weights == "samples" else 1.0 for y_i in world.y])
            state["shares"] = counts / counts.sum()
        if "changes" in vectors:
            rows = max(clusters) + 1 if isinstance(clusters, list) else clusters or world.n
            state["changes"] = np.zeros((rows, size))
        if "controls" in vectors:
            state |= {"controls": np.zeros((world.n, size)), "control": np.zeros((1, size))}
        return state

    return start


def fedavg(before, now, rank=None, fine_tune=None, **options):
    if "local_epochs" in options or "aggregate" in options or now.loops is not references:
        return family("FedAvg")(before, now, **options)
    if "B" in before:
        B, w = references.fedavg_two_layer_round(before["B"], before["W"][0], now.X, now.y, **options)
        return {"B": B, "W": w[None]}
    return {"S": references.fedavg_round(before["S"][0], now.X, now.y, **options)[None]}


def fine_tuned(before, now, *, fine_tune, step_size, **options):
    B, (w,) = before["B"], before["W"]
    return before | {"W": now.loops.fine_tuned(B, w, now.X, now.y, fine_tune, step_size)}


def family(kind):
    """Return the round of an algorithm of the averaging family."""

    def one(before, now, rank=None, fine_tune=None, **options):
        rank = before["B"].shape[1] if "B" in before else 0
        vector = np.concatenate([before["B"].ravel(), before["W"][0].ravel()]) if rank else before["S"][0].ravel()
        d = now.X[0].shape[1]
        X, y = [np.zeros((0, d))] * now.n, [np.zeros(0)] * now.n  # nobody reads the samples of the others
        for i, X_i, y_i in zip(*now.samples[2:], now.X, now.y, strict=True):
            X[i], y[i] = X_i, y_i
        loop = now.loops.Family(kind, vector, X, y, rank=rank, **options)
        loop.classes = before["W"].shape[1] if rank and before["W"].ndim == 3 else len(before.get("S", [[]])[0])
        if "shares" in before:
            loop.pi = before["shares"]
        if "changes" in before:
            loop.memory = dict(enumerate(before["changes"]))
        if "controls" in before:
            loop.c, loop.controls = before["control"][0], list(before["controls"])
        drawn = "local_epochs" in options
        loop.round(now.number, now.active, now.rng.permutations((len(now.active),), now.m)[0] if drawn else None)
        if rank:
            B, W = np.split(loop.vector, [d * rank])
            after = before | {"B": B.reshape(d, rank), "W": W.reshape(before["W"].shape)}
        else:
            after = before | {"S": loop.vector.reshape(before["S"].shape)}
        if "changes" in before:
            after["changes"] = np.array([loop.memory[c] for c in sorted(loop.memory)])
        if "controls" in before:
            after |= {"control": loop.c[None], "controls": np.array(loop.controls)}
        return after

    return one


# --- personal models -----------------------------------------------------------------------------------------


def ditto_start(world, **options):
    return own_models(world) | {"shared": world.zeros(1, world.d)}


def ditto(before, now, **options):
    options["slope"] = now.loops.gradient
    theta, V = references.ditto_round(before["shared"][0], before["S"], *now.samples, **options)
    return {"S": V, "shared": theta[None]}


def apfl_start(world, *, mix=0.5, **options):
    return {"own": world.zeros(world.n, world.d), "shared": world.zeros(1, world.d), "mix": np.full(world.n, mix)}


def apfl(before, now, mix=0.5, **options):
    options["slope"] = now.loops.gradient
    theta, V, a = references.apfl_round(before["shared"][0], before["own"], before["mix"], *now.samples, **options)
    return {"own": V, "shared": theta[None], "mix": a}


def pfedme(before, now, **options):
    options["slope"] = now.loops.gradient
    w, T = references.pfedme_round(before["shared"][0], before["S"], *now.samples, **options)
    return {"S": T, "shared": w[None]}


def l2gd(before, now, **options):
    coin = now.rng.uniform(())[0] < options["mean_probability"]
    options["slope"] = now.loops.gradient
    return {"S": references.l2gd_round(before["S"], coin, *now.samples, **options)}


def perfedavg_start(world, **options):
    return one_model(world) | {"shared": world.zeros(1, world.d)}


def perfedavg(before, now, **options):
    theta = references.perfedavg_round(before["S"][0], now.X, now.y, slope=now.loops.gradient, **options)
    return {"S": theta[None], "shared": theta[None]}


def perfedavg_end(before, now, *, adaptation_step_size, **options):
    (theta,) = before["S"]
    slopes = [now.loops.gradient(X_i, y_i, theta) for X_i, y_i in zip(now.X, now.y, strict=True)]
    return before | {"S": np.array([theta - adaptation_step_size * g for g in slopes])}


def armul_start(world, *, rank="given", **options):
    if rank is None:
        return {"shared": world.zeros(1, world.d), "parts": world.zeros(world.n, world.d)}
    return own_heads(world) | own_models(world)


def armul(before, now, rank=None, **options):
    if "B" in before:
        found = references.low_rank_armul_round(before["B"], before["W"], before["S"], *now.samples, **options)
        return dict(zip("BWS", found, strict=True))
    theta, parts = references.armul_round(before["shared"][0], before["parts"], *now.samples, **options)
    return {"shared": theta[None], "parts": parts}


# --- baselines -----------------------------------------------------------------------------------------------


def local_only(before, now, *, step_size=None, ridge=0.0, local_steps=1):
    if step_size is not None:
        steps = {"step_size": step_size, "local_steps": local_steps, "ridge": ridge}
        return {"S": now.loops.local_round(before["S"], *now.samples, **steps)}
    S = before["S"].copy()
    for i, X_i, y_i in zip(now.active, now.X, now.y, strict=True):
        S[i] = references.least_squares(X_i, y_i, ridge)
    return {"S": S}


def pooled(before, now, weights="uniform", ridge=0.0):
    shares = references.shares(now.y, weights)
    X, y, d = now.X, now.y, now.X[0].shape[1]
    if ridge:  # d more rows, as of one more client
        X, y, shares = [*X, np.sqrt(d * ridge) * np.eye(d)], [*y, np.zeros(d)], [*shares, 1.0]
    return {"S": references.stacked_least_squares(X, y, shares)[None]}


def oracle_start(world, **options):
    return own_heads(world) | {"B": references.qr_positive(world.B_star)[0]}


def oracle(before, now, ridge=0.0):
    W = before["W"].copy()
    for i, X_i, y_i in zip(now.active, now.X, now.y, strict=True):
        W[i] = references.least_squares(X_i @ before["B"], y_i, ridge)
    return before | {"W": W}


LOOPS: dict[type[lf.Algorithm], Loop] = {
    lf.FedRep: Loop(own_heads, fedrep, classes=True),
    lf.PrivateFedRep: Loop(own_heads, private_fedrep),
    lf.CompressedFedRep: Loop(own_heads, compressed_fedrep),
    lf.FedRepShortcut: Loop(shortcut_start, shortcut, shortcut_end),
    lf.FLUTE: Loop(given_heads, flute),
    lf.GeneralFLUTE: Loop(lambda world, **options: None, general_flute, classes=True),
    lf.FedPer: Loop(own_heads, fedper, classes=True),
    lf.FedBABU: Loop(fedbabu_start, fedbabu, exact_end),
    lf.LGFedAvg: Loop(lgfedavg_start, lgfedavg, classes=True),
    lf.FedRoD: Loop(fedrod_start, fedrod, fedrod_end, classes=True),
    lf.FedAvg: Loop(averaging_start(), fedavg, fine_tuned, classes=True),
    lf.FedProx: Loop(averaging_start(), family("FedProx"), classes=True),
    lf.SCAFFOLD: Loop(averaging_start("controls"), family("SCAFFOLD"), classes=True),
    lf.FedVARP: Loop(averaging_start("changes"), family("FedVARP"), classes=True),
    lf.ClusterFedVARP: Loop(averaging_start("changes"), family("ClusterFedVARP"), classes=True),
    lf.FedRolex: Loop(averaging_start(), family("FedRolex"), classes=True),
    lf.FedSCAVAR: Loop(averaging_start("changes", "controls"), family("FedSCAVAR"), classes=True),
    lf.Ditto: Loop(ditto_start, ditto, classes=True),
    lf.APFL: Loop(apfl_start, apfl, classes=True),
    lf.PFedMe: Loop(ditto_start, pfedme, classes=True),
    lf.L2GD: Loop(own_models, l2gd, classes=True),
    lf.PerFedAvg: Loop(perfedavg_start, perfedavg, perfedavg_end, classes=True),
    lf.ARMUL: Loop(armul_start, armul),
    lf.AltGDmin: Loop(altgdmin_start, altgdmin),
    lf.AltMin: Loop(own_heads, altmin),
    lf.TPGD: Loop(given_heads, tpgd),
    lf.ANIL: Loop(anil_start, anil, anil_end),
    lf.MAML: Loop(maml_start, maml, maml_end),
    lf.LocalOnly: Loop(own_models, local_only, classes=True),
    lf.PooledLeastSquares: Loop(one_model, pooled),
    lf.Oracle: Loop(oracle_start, oracle),
}


def personalized(base: Loop) -> Loop:
    """Return the loop of an algorithm whose clients fit a personal part after its end; it is 0 before."""

    def start(world, *, base_options, ridge):
        return {"S": world.zeros(1, world.d)} | base.start(world, **base_options)

    def round_(before, now, *, base_options, ridge):
        return before | base.round(before, now, **base_options)

    def end(before, now, *, base_options, ridge):
        fitted = base.end(before, now, **base_options) if "fine_tune" in base_options else before
        W, S = references.personalised(now.X, now.y, fitted["B"], ridge)
        return fitted | {"W": W, "S": S}

    return Loop(start, round_, end)


# --- comparison ----------------------------------------------------------------------------------------------


def assert_rounds_are_the_loop(
    learner, problem=None, *, n_rounds, rank=2, init="random", step_size=0.1, worlds=(), loops=references, seed=0, **run
):
    """Assert that every round of a run of explicit rows is that of the learner's loop, from the state before it.

    Parameters
    ----------
    learner : worlds.Learner
    problem, n_rounds, seed, **run
        As of `lf.iterate`.
    rank, init, step_size
        As of `worlds.Learner.make`.
    worlds : sequence of World
        Samples of each trial; then the initial state is compared as well.
    loops : module
        Loops of the loss.

    Returns
    -------
    int
        Number of rounds of all trials that were compared; rounds that are too ill-conditioned are not.
    """
    algorithm, options = learner.make(rank, init, step_size), learner.options_at(rank, step_size)
    steps = lf.iterate(algorithm, problem, n_rounds=n_rounds, seed=seed, engine="explicit", **run)
    compared = 0
    for step in steps:
        before, after = step.before.arrays(), step.after.arrays()
        for t in range(len(step.alive)):
            if step.number == 0:
                rngs = [TrialRandom(generators(seed, Stream.ALGORITHM, [t])) for t in range(len(step.alive))]
                wanted = learner.loop.start(worlds[t], **options) if worlds else None
            else:
                one = learner.loop.end if step.number > n_rounds else learner.loop.round
                now = round_of(step.batch, t, step.number, rngs[t], loops)
                wanted = one({name: array[t] for name, array in before.items()}, now, **options)
                compared += wanted is not None
            if wanted is not None:
                assert wanted.keys() == after.keys()
                for name, array in wanted.items():
                    told = f"{name} after round {step.number}"
                    np.testing.assert_allclose(after[name][t], array, rtol=1e-10, atol=1e-10, err_msg=told)
    assert step.number == n_rounds + algorithm.finishes
    return compared


def round_of(batch, t, number, rng, loops):
    """Return the round of a trial."""
    counts = batch.counts[t].astype(int)
    X, y = ([rows[:m] for rows, m in zip(array[t], counts, strict=True)] for array in (batch.X, batch.y))
    if loops is not references:
        X = [X_i[:, :-1] for X_i in X]  # without the column of ones of the biases
    return Round(X, y, batch.active[t], number, batch.n_clients, batch.X.shape[2], rng, loops)
