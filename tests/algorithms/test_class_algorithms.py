"""Every algorithm on classes: its loop, over rounds, trials, some participants and unequal counts; reductions."""

import itertools

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.representation.general_flute import random_heads
from tests.algorithms import class_references as ref
from tests.data.class_samples import TRIALS, Begin, C, D, K, draw, orders, random, run
from tests.helpers import assert_one_line, each, normal, some

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
ETA = 0.3


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, **TOLERANCE)


SETTINGS = [("equal", 5), ("unequal", 3)]
GRADIENT = {
    "1 step": {"heads": lf.GradientHeads()},
    "10 steps": {"heads": lf.GradientHeads(steps=10)},
    "own step, 3 local steps": {"heads": lf.GradientHeads(steps=2, step_size=0.7), "representation_steps": 3},
    "no QR, 2 local steps": {"heads": lf.GradientHeads(), "representation_steps": 2, "orthonormalize": False},
    "sum": {"heads": lf.GradientHeads(), "aggregate": "sum"},
    "sum, 2 local steps": {"heads": lf.GradientHeads(), "aggregate": "sum", "representation_steps": 2},
    "split": {"heads": lf.GradientHeads(steps=2), "split": True},
    "split, 2 local steps": {"heads": lf.GradientHeads(), "split": True, "representation_steps": 2},
}
LOCAL = [{}, {"local_steps": 3, "server_step_size": 0.7}]


@each("counts, p", SETTINGS)
@each("own", GRADIENT)
def test_fedrep_is_its_loop(counts, p, own):
    if "split" in own and counts == "unequal":
        counts = "unequal, above 1"
    samples, rounds = draw(counts), orders(4, p)
    states = run(lf.FedRep(rank=K, step_size=ETA, **GRADIENT[own]), samples, rounds)
    for t in range(TRIALS):
        B, W = states[0].B[t], states[0].W[t]
        assert not W.any()
        for state, active in zip(states[1:], rounds, strict=True):
            B, W = ref.fedrep_round(B, W, *samples.of(t, active[t]), active[t], step_size=ETA, **GRADIENT[own])
            close(state.B[t], B)
            close(state.W[t], W)


@each("counts, p", SETTINGS)
@each("own", LOCAL)
def test_fedper_and_lgfedavg_are_their_loops(counts, p, own):
    samples, rounds = draw(counts), orders(4, p)
    pers, lgs = (run(kind(rank=K, step_size=ETA, **own), samples, rounds) for kind in (lf.FedPer, lf.LGFedAvg))
    for t in range(TRIALS):
        B, W, apart, H = pers[0].B[t], pers[0].W[t], lgs[0].own[t], lgs[0].W[t, 0]
        for per, lg, active in zip(pers[1:], lgs[1:], rounds, strict=True):
            taken = (*samples.of(t, active[t]), active[t])
            B, W = ref.fedper_round(B, W, *taken, step_size=ETA, **own)
            apart, H = ref.lgfedavg_round(apart, H, *taken, step_size=ETA, **own)
            close(per.B[t], B)
            close(per.W[t], W)
            close(lg.own[t], apart)
            close(lg.W[t, 0], H)
        close(per.predictors()[t], [ref.predictor(B, H_i) for H_i in W])
        close(lg.predictors()[t], [ref.predictor(B_i, H) for B_i in apart])


SHARES = [0.3, 1.0, 0.5, 0.7, 0.2]
FAMILY = {
    "FedAvg": [{}, {"weights": "samples"}],
    "FedProx": [{"mu": 0.4}],
    "SCAFFOLD": [{}, {"controls": "gradient", "weights": "samples"}],
    "FedVARP": [{}],
    "ClusterFedVARP": [{"clusters": [0, 1, 0, 2, 1]}],
    "FedRolex": [{"model_share": SHARES}, {"model_share": 0.5, "aggregation": "zero-filled"}],
    "FedSCAVAR": [{"clusters": 2, "model_share": SHARES, "mu": 0.3}],
}
FAMILY_LOCAL = [*LOCAL, {"local_epochs": 2, "batch_size": 4}]


@each("rank", [None, K])
@each("counts, p", [("equal", 5), ("unequal", 3)])
@each("local", FAMILY_LOCAL)
@pytest.mark.parametrize("kind", some(FAMILY, 3))
def test_the_averaging_family_is_its_loops(kind, local, counts, p, rank):
    samples, rounds = draw(counts), orders(5, p)
    for own in FAMILY[kind]:
        options = {"step_size": ETA, **own, **local}
        begin, *states = run(getattr(lf, kind)(rank=rank, **options), samples, rounds)
        for t in range(TRIALS):
            loop = ref.Family(kind, vector(begin, t), samples.X[t], samples.labels[t], rank=rank or 0, **options)
            loop.classes, rng = C, random()
            for number, (state, active) in enumerate(zip(states, rounds, strict=True), 1):
                drawn = rng.permutations((p,), samples.m)[t] if "local_epochs" in local else None
                loop.round(number, active[t], drawn)
                close(vector(state, t), loop.vector)
            if hasattr(state, "controls"):
                close(state.controls[t], loop.controls)
                close(state.control[t, 0], loop.c)
            if hasattr(state, "changes"):
                close(state.changes[t], [loop.memory[c] for c in sorted(loop.memory)])


def vector(state, t):
    """Return the shared parameters of a trial."""
    return state.S[t].ravel() if state.B is None else np.concatenate([state.B[t].ravel(), state.W[t, 0].ravel()])


@each("tune", [lf.GradientHeads(steps=4), lf.GradientHeads(steps=2, step_size=0.9)])
def test_fine_tuning_goes_on_from_the_shared_head(tune):
    samples, rounds = draw(), orders(4, 3)
    *_, before, after = run(lf.FedAvg(rank=K, step_size=ETA, fine_tune=tune), samples, rounds)
    assert np.array_equal(after.B, before.B)
    for t in range(TRIALS):
        for i, (X, y) in enumerate(zip(samples.X[t], samples.labels[t], strict=True)):
            close(after.W[t, i], ref.gradient_heads(X @ before.B[t], y, before.W[t, 0], tune, ETA))


PERSONAL = {
    "balanced": {},
    "balanced, by samples": {"weights": "samples", "local_steps": 3, "personal": lf.GradientHeads(steps=3)},
    "not balanced": {"balanced": False, "server_step_size": 0.7, "local_steps": 2},
}


@each("counts, p", SETTINGS)
@each("own", PERSONAL)
def test_fedrod_is_its_loop(counts, p, own):
    samples, rounds, options = draw(counts), orders(4, p), dict(PERSONAL[own])
    states = run(lf.FedRoD(rank=K, step_size=ETA, **options), samples, rounds)
    personal, balance = options.pop("personal", lf.GradientHeads()), options.pop("balanced", True)
    for t in range(TRIALS):
        B, H, V = states[0].B[t], states[0].W[t, 0], states[0].V[t]
        for state, active in zip(states[1:], rounds, strict=True):
            B, H, V = ref.fedrod_round(
                *(B, H, V, *samples.of(t, active[t]), active[t]),
                step_size=ETA, personal=personal, balance=balance, **options,
            )  # fmt: skip
            close(state.B[t], B)
            close(state.W[t, 0], H)
            close(state.V[t], V)
            close(state.predictors()[t], [ref.predictor(B, H + V_i) for V_i in V])


def test_fedrod_in_minibatches_of_unequal_counts():
    """The balance is that of all the client's samples, in every minibatch."""
    samples, rounds = draw(), orders(3, 3)
    states = run(lf.FedRoD(rank=K, step_size=ETA, local_epochs=2, batch_size=4), samples, rounds)
    for t in range(TRIALS):
        rng, shared = random(), vector(states[0], t)
        for state, active in zip(states[1:], rounds, strict=True):
            drawn, moved = rng.permutations((3,), samples.m)[t], 0.0
            for place, i in enumerate(active[t]):
                X, y = samples.X[t][i], samples.labels[t][i]
                own, local = [j for j in drawn[place] if j < len(y)], shared
                for _ in range(2):
                    for cut in (own[start : start + 4] for start in range(0, len(own), 4)):
                        B, H = local[: D * K].reshape(D, K), local[D * K :].reshape(C, K + 1)
                        at = (y[cut], B, H, ref.balanced(y, C))
                        by_B = ref.gradient_of_B(X[cut], *at)
                        by_H = ref.gradient(X[cut] @ B, y[cut], H, at[-1])
                        local = local - ETA * np.concatenate([by_B.ravel(), by_H.ravel()])
                moved = moved + (local - shared) / 3
            shared = shared + moved
            close(vector(state, t), shared)


@each("options", [{}, {"ridge": 0.4, "local_steps": 3}])
def test_clients_alone_are_their_loop_and_biases_are_free(options):
    samples, rounds = draw(), orders(4, 3)
    states = run(lf.LocalOnly(step_size=ETA, **options), samples, rounds)
    for t in range(TRIALS):
        Theta = states[0].S[t]
        for state, active in zip(states[1:], rounds, strict=True):
            Theta = ref.local_round(Theta, *samples.of(t, active[t]), active[t], step_size=ETA, **options)
            close(state.S[t], Theta)


FLUTE = {
    "by default": {},
    "all penalties": {"feature_penalty": 0.2, "head_penalty": 0.3, "collapse_penalty": 0.5, "local_steps": 3},
    "one step, penalties": {"feature_penalty": 0.2, "head_penalty": 0.3},
    "FLUTE*": {"head_steps": 10, "server_step_size": 0.05, "feature_penalty": 0.1},
    "none": {"collapse_penalty": 0.0, "server_step_size": 0.0, "local_steps": 2},
}


@each("counts, p", SETTINGS)
@each("own", FLUTE)
def test_general_flute_is_its_loop(counts, p, own):
    samples, rounds = draw(counts), orders(4, p)
    states = run(lf.GeneralFLUTE(rank=K, step_size=ETA, **FLUTE[own]), samples, rounds)
    for t in range(TRIALS):
        B, W = states[0].B[t], states[0].W[t]
        assert np.array_equal(W, np.repeat(W[:1], 5, axis=0))  # the same heads
        assert W[..., :-1].all()
        assert not W[..., -1].any()
        for state, active in zip(states[1:], rounds, strict=True):
            taken = (*samples.of(t, active[t]), active[t], samples.own(t, active[t]))
            B, W = ref.flute_round(B, W, *taken, step_size=ETA, **FLUTE[own])
            close(state.B[t], B)
            close(state.W[t], W)


@each("scale", [1.0, 0.7])
def test_random_heads_come_from_the_stream_of_the_algorithm(scale):
    drawn, begin = random().standard_normal((1, C, K)) / np.sqrt(K), lambda: Begin(draw())
    flute = lf.GeneralFLUTE(rank=K, step_size=ETA, head_scale=scale).initial_state(begin()).W
    babu = lf.FedBABU(rank=K, step_size=ETA).initial_state(begin()).W
    for W, factor, clients in ((flute, scale, 5), (babu, 1.0, 1), (random_heads(begin(), 3, K), 1.0, 3)):
        close(W[..., :-1], np.broadcast_to(factor * drawn, (TRIALS, clients, C, K)))
        assert not W[..., -1].any()


@each("data", [lf.FixedSamples(5), lf.FreshSamples(5)])
def test_drawn_samples_replayed_through_the_loop(data):
    """Clients keep their classes whoever takes part: fixed and fresh samples of a problem, several trials."""
    problem = lf.Classes(n_clients=6, n_classes=C, classes_per_client=[1, 2, 3, 4, 1, 2], dim=D)
    algorithm = lf.GeneralFLUTE(rank=K, step_size=ETA, head_steps=2)
    first, *_ = lf.iterate(algorithm, problem, data=data, rounds=4, trials=TRIALS, participation=3)
    for t in range(TRIALS):
        B, W = first.after.B[t], first.after.W[t]
        for round_ in lf.iterate(algorithm, problem, data=data, rounds=4, trials=TRIALS, participation=3):
            if round_.number:
                batch, active = round_.batch, round_.batch.active[t]
                own = [np.flatnonzero(problem.truth(0, range(TRIALS)).holds[t, i]) for i in active]
                X, y = batch.X[t, ..., :-1], batch.y[t]
                B, W = ref.flute_round(B, W, X, y, active, own, step_size=ETA, head_steps=2)
                close(round_.after.B[t], B)
                close(round_.after.W[t], W)


def test_the_server_moves_heads_alone_and_those_of_participants():
    samples, rounds = draw(), orders(1, 3)
    options = {"rank": K, "step_size": ETA}
    still, moved = (run(lf.GeneralFLUTE(**options, server_step_size=step), samples, rounds)[-1] for step in (0.0, 0.2))
    assert np.array_equal(still.B, moved.B)
    assert np.array_equal(still.W[..., -1], moved.W[..., -1])
    for t in range(TRIALS):
        went = np.abs(still.W[t] - moved.W[t]).max(axis=(-2, -1)) > 1e-6
        assert np.flatnonzero(went).tolist() == rounds[0][t].tolist()


# --- the whole loss, against central differences -------------------------------------------------------------


def slope(function, at, step=1e-6):
    """Return the central differences of a function of an array."""
    out = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        moved = np.zeros(at.shape)
        moved[index] = step
        out[index] = (function(at + moved) - function(at - moved)) / (2 * step)
    return out


def test_general_flute_goes_down_the_slope_of_its_whole_loss():
    samples, penalties = draw(), (0.2, 0.3, 0.5)
    names = dict(zip(("feature_penalty", "head_penalty", "collapse_penalty"), penalties, strict=True))
    algorithm = lf.GeneralFLUTE(rank=K, step_size=ETA, server_step_size=0.0, **names)
    begin = lf.State(B=normal(TRIALS, D, K), W=normal(TRIALS, 5, C, K + 1, seed=1))
    _, after = run(algorithm, samples, [samples.all_clients], begin)
    for t in range(TRIALS):
        by_B = []
        for i, (X, y, own) in enumerate(zip(*samples.of(t, range(5)), samples.own(t, range(5)), strict=True)):
            B, H = begin.B[t], begin.W[t, i]
            by_H = slope(lambda H, of=(X, y, B), own=own: ref.flute_loss(*of, H, own, *penalties), H)
            by_B.append(slope(lambda B, of=(X, y), H=H, own=own: ref.flute_loss(*of, B, H, own, *penalties), B))
            np.testing.assert_allclose((H - after.W[t, i]) / ETA, by_H, rtol=0, atol=1e-7)
        np.testing.assert_allclose((begin.B[t] - after.B[t]) / ETA, np.mean(by_B, axis=0), rtol=0, atol=1e-7)


def test_the_loops_own_gradient_of_nc_is_its_slope():
    for own in ([0, 1, 2, 3], [1, 3], [2]):
        H = normal(C, K, seed=len(own))
        by_hand = slope(lambda H, own=own: ref.nc(H, own), H)
        np.testing.assert_allclose(ref.nc_gradient(H, own), by_hand, rtol=0, atol=1e-8)


# --- reductions ----------------------------------------------------------------------------------------------


@each("counts, p", SETTINGS)
def test_general_flute_without_penalties_is_fedper_from_the_same_start(counts, p):
    samples, rounds = draw(counts), orders(4, p)
    flute = lf.GeneralFLUTE(rank=K, step_size=ETA, local_steps=3, collapse_penalty=0.0, server_step_size=0.0)
    states = run(flute, samples, rounds)
    others = run(lf.FedPer(rank=K, step_size=ETA, local_steps=3), samples, rounds, states[0])
    for one, other in zip(states, others, strict=True):
        close(one.B, other.B)
        close(one.W, other.W)


def test_the_model_of_fedrod_without_balance_is_that_of_fedavg():
    """Bit for bit, in minibatches too."""
    samples, rounds = draw(), orders(4, 3)
    for local in FAMILY_LOCAL:
        one = run(lf.FedRoD(rank=K, step_size=ETA, balanced=False, **local), samples, rounds)[-1]
        other = run(lf.FedAvg(rank=K, step_size=ETA, **local), samples, rounds)[-1]
        assert np.array_equal(one.B, other.B)
        assert np.array_equal(one.W, other.W)
        balanced = run(lf.FedRoD(rank=K, step_size=ETA, **local), samples, rounds)[-1]
        assert np.abs(balanced.W - other.W).max() > 1e-3


def test_fedrolex_with_the_whole_model_is_fedavg():
    samples, rounds = draw(), orders(4, 3)
    for rank, aggregation in itertools.product((None, K), ("published", "zero-filled")):
        options = {"rank": rank, "step_size": ETA, "local_steps": 2}
        one = run(lf.FedRolex(model_share=1.0, aggregation=aggregation, **options), samples, rounds)[-1]
        other = run(lf.FedAvg(**options), samples, rounds)[-1]
        for t in range(TRIALS):
            close(vector(one, t), vector(other, t))


def test_fine_tuning_by_steps_of_nearly_nothing_changes_nearly_nothing():
    samples, rounds = draw(), orders(4, 3)
    plain = run(lf.FedAvg(rank=K, step_size=ETA), samples, rounds)[-1]
    tuned = run(lf.FedAvg(rank=K, step_size=ETA, fine_tune=lf.GradientHeads(step_size=1e-14)), samples, rounds)[-1]
    assert np.array_equal(plain.B, tuned.B)
    assert tuned.W.shape == (TRIALS, 5, C, K + 1)
    np.testing.assert_allclose(tuned.W, np.repeat(plain.W, 5, axis=1), rtol=0, atol=1e-13)


def test_gradient_steps_on_squares_end_at_least_squares_and_at_ridge():
    problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2, noise_std=0.5)
    run_with = {"data": lf.FixedSamples(30), "rounds": 300, "trials": 2}
    for ridge in (0.0, 0.4):
        steps = lf.simulate(lf.LocalOnly(ridge=ridge, step_size=0.5, local_steps=5), problem, **run_with)
        exact = lf.simulate(lf.LocalOnly(ridge=ridge), problem, **(run_with | {"rounds": 1}))
        close(steps.final.S, exact.final.S)


# --- what classes do not have --------------------------------------------------------------------------------

PROBLEM = lf.Classes(n_clients=4, n_classes=3, classes_per_client=2, dim=5)
RUN = {"data": lf.FixedSamples(6), "rounds": 2}
REFUSED = {
    "heads = ExactHeads": lf.FedRep(rank=2, step_size=0.1),
    "fine_tune = ExactHeads": lf.FedAvg(rank=2, step_size=0.1, fine_tune=lf.ExactHeads()),
    "personal = ExactHeads": lf.FedRoD(rank=2, step_size=0.1, personal=lf.ExactHeads()),
    "step_size = None (least squares) supports only regression": lf.LocalOnly(),
    "FLUTE supports only regression": lf.FLUTE(rank=2, step_size=0.1),
    "FedRepShortcut supports only regression": lf.FedRepShortcut(rank=2, step_size=0.1),
    "PooledLeastSquares supports only regression": lf.PooledLeastSquares(),
    "Oracle supports only regression": lf.Oracle(rank=2),
    "Personalized supports only regression": lf.Personalized(
        base=lf.FedRep(rank=2, step_size=0.1, heads=lf.GradientHeads()), ridge=0.1
    ),
}


@each("told", REFUSED)
def test_what_is_of_squares_is_refused_before_the_run(told):
    assert_one_line(lambda: lf.simulate(REFUSED[told], PROBLEM, **RUN), [told, "3 classes"])


def test_fine_tuning_of_fedrod_by_least_squares_is_refused_before_the_run():
    algorithm = lf.FedRoD(rank=2, step_size=0.1, fine_tune=lf.ExactHeads())
    assert_one_line(lambda: lf.simulate(algorithm, PROBLEM, **RUN), ["fine_tune = ExactHeads", "3 classes"])


def test_general_flute_is_of_classes_alone():
    problem = lf.SharedRepresentation(n_clients=4, dim=5, rank=2)
    algorithm = lf.GeneralFLUTE(rank=2, step_size=0.1)
    assert_one_line(
        lambda: lf.simulate(algorithm, problem, **RUN), ["GeneralFLUTE supports only classification", "lf.FLUTE"]
    )


@each(
    "fragment, options",
    [
        ("rank = 9 must be at most dim = 5", {"rank": 9}),
        ("head_steps = -1", {"head_steps": -1}),
        ("collapse_penalty = -0.1", {"collapse_penalty": -0.1}),
        ("head_scale = 0", {"head_scale": 0}),
        ("server_step_size = -1", {"server_step_size": -1}),
        ("init = 'Random'", {"init": "Random"}),
    ],
)
def test_bad_options_of_general_flute(fragment, options):
    wanted = {"rank": 2, "step_size": 0.1} | options
    assert_one_line(lambda: lf.simulate(lf.GeneralFLUTE(**wanted), PROBLEM, **RUN), [fragment])


@each(
    "algorithm",
    [
        lf.FedRep(rank=2, step_size=0.1, init="random", heads=lf.GradientHeads()),
        lf.FedRoD(rank=2, step_size=0.1),
        lf.LGFedAvg(rank=2, step_size=0.1),
        lf.LocalOnly(step_size=0.1),
        lf.GeneralFLUTE(rank=2, step_size=0.1),
    ],
)
def test_new_clients_have_no_closed_form(algorithm):
    result = lf.simulate(algorithm, PROBLEM, **RUN)
    assert_one_line(lambda: result.new_clients([5]), ["new_clients", "supports only"])
    assert_one_line(lambda: result.adapt(normal(2, 4, 5), np.zeros((2, 4))), ["3 classes"])
