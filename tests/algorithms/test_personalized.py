"""One personal ridge fit after any algorithm with a B, and what it reduces to."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.base import requires_of
from linfed.data.explicit import ExplicitBatch
from linfed.numerics.least_squares import joint_ridge
from tests import references as ref
from tests.helpers import normal

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
STEPS = {"rank": 2, "step_size": 0.03}
BASES = {
    "FedRep": lf.FedRep(**STEPS, init="random"),
    "FedRep, gradient heads": lf.FedRep(**STEPS, init="random", heads=lf.GradientHeads()),
    "FedPer": lf.FedPer(**STEPS),
    "FedAvg": lf.FedAvg(**STEPS),
    "FedAvg + FT": lf.FedAvg(**STEPS, fine_tune=lf.ExactHeads()),
    "FLUTE": lf.FLUTE(**STEPS),
    "shortcuts": lf.FedRepShortcut(**STEPS, init="random"),
    "shortcuts, refit": lf.FedRepShortcut(**STEPS, init="random", refit=True),
    "oracle": lf.Oracle(rank=2),
}


def draw(counts, d, seed=1):
    """Return samples of truths of full rank, one array a client."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((m, d)) for m in counts]
    return X, [X_i @ rng.standard_normal(d) + 0.3 * rng.standard_normal(len(X_i)) for X_i in X]


def run(algorithm, X, y, **changes):
    problem = lf.GivenTruth(Phi=normal(len(X), X[0].shape[1]), noise_std=0.3)
    return lf.simulate(
        algorithm, problem, data=lf.GivenSamples(X, y), **{"n_rounds": 6, "engine": "explicit"} | changes
    )


@pytest.mark.parametrize("counts", [[2] * 5, [9] * 5, [1, 9, 4, 14, 7]], ids=str)
@pytest.mark.parametrize("base", BASES)
def test_the_rounds_are_those_of_the_base_and_the_end_is_one_fit(base, counts):
    X, y = draw(counts, 6)
    one, two = run(BASES[base], X, y), run(lf.Personalized(base=BASES[base], ridge=0.1), X, y)
    assert two.rounds.tolist() == list(range(8))
    for name, values in one.metrics.items():
        np.testing.assert_allclose(two.metrics[name][:, :7], values[:, :7], rtol=1e-12, atol=1e-14)
    assert np.array_equal(two.final.B, one.final.B)
    W, S = ref.personalised(X, y, one.final.B[0], 0.1)
    np.testing.assert_allclose(two.final.S[0], S, **TOLERANCE)
    np.testing.assert_allclose(two.final.W[0] @ two.final.B[0].T, W @ one.final.B[0].T, **TOLERANCE)


@pytest.mark.parametrize("counts", [[4] * 5, [12] * 5, [1, 9, 4, 14, 7]], ids=str)
@pytest.mark.parametrize("base", ["FedRep", "FedRep, gradient heads", "FedPer", "FedAvg"])
def test_an_infinite_ridge_leaves_exact_heads(base, counts):
    X, y = draw(counts, 6)
    final = run(lf.Personalized(base=BASES[base], ridge=1e12), X, y).final
    assert np.abs(final.S).max() < 1e-10
    heads = [ref.least_squares(X_i @ final.B[0], y_i) for X_i, y_i in zip(X, y, strict=True)]
    np.testing.assert_allclose(final.W[0], heads, rtol=0, atol=1e-9)


@pytest.mark.parametrize("m", [4, 12])
def test_it_is_the_joint_fit_of_the_algorithm_with_shortcuts(m):
    """Laid over the joint form, whose B stands still once the step is nearly 0, it changes nothing."""
    X, y = draw([m] * 5, 6)
    joint = lf.FedRepShortcut(
        rank=2, step_size=1e-12, solver=lf.ClosedForm(order="joint"), ridge=0.3, init=np.eye(6)[:, :2]
    )
    one, two = run(joint, X, y), run(lf.Personalized(base=joint, ridge=0.3), X, y)
    for name in "WS":
        np.testing.assert_allclose(getattr(two.final, name), getattr(one.final, name), rtol=0, atol=1e-9)


@pytest.mark.parametrize("m", [1, 4, 12])
def test_the_length_of_the_columns_changes_no_prediction(m):
    """FLUTE's B begins at a thousandth and is as long as the truth at the end."""
    A, b = (array[None] for array in (normal(5, m, 6), normal(5, m)))
    B, moments = normal(1, 6, 2), (A.mT @ A / m, (b[:, :, None] @ A)[:, :, 0] / m)
    W, S, _ = joint_ridge(*moments, B, 0.1)
    for scale in (1e-7, 1e-3, 1e5):
        head, shortcut, _ = joint_ridge(*moments, scale * B, 0.1)
        np.testing.assert_allclose(shortcut, S, rtol=0, atol=1e-9)
        np.testing.assert_allclose(scale * head, W, rtol=0, atol=1e-9)


@pytest.mark.parametrize("m", [1, 3, 15])
def test_new_clients_fit_as_the_training_ends(m):
    X, y = draw([m] * 3, 6)
    batch = ExplicitBatch(np.array(X)[None], np.array(y)[None], active=np.arange(3)[None])
    B = normal(1, 6, 2, seed=4)
    state = lf.Personalized(base=BASES["FedRep"], ridge=0.3).adapt(lf.State(B=B, W=normal(1, 9, 2)), batch)
    for got, wanted in zip((state.B, state.W, state.S), (B[0], *ref.personalised(X, y, B[0], 0.3)), strict=True):
        np.testing.assert_allclose(got[0], wanted, **TOLERANCE)


def test_a_trial_that_diverged_stays_as_it_was():
    """The personal part comes with the end: the trials that have diverged before keep theirs, which is 0."""
    X, y = draw([9] * 4, 6)
    init = normal(3, 6, 2)
    init[1] *= 1e4
    base = lf.FedRep(rank=2, step_size=0.05, init=init, heads=lf.GradientHeads(), orthonormalize=False)
    one, two = (run(a, X, y, trials=3, n_rounds=30) for a in (base, lf.Personalized(base=base, ridge=0.1)))
    assert [status.name for status in two.status] == ["COMPLETED", "DIVERGED", "COMPLETED"]
    for name in "BW":
        assert np.array_equal(getattr(two.final, name)[1], getattr(one.final, name)[1])
    assert not two.final.S[1].any()
    assert two.final.S[[0, 2]].any(axis=(1, 2)).all()
    alone = run(lf.Personalized(base=dataclasses.replace(base, init=init[2]), ridge=0.1), X, y, n_rounds=30).final
    for name, array in alone.arrays().items():
        assert np.array_equal(array[0], getattr(two.final, name)[2])


def test_a_base_may_build_its_states_anew():
    class Anew(lf.FedRep):
        def step(self, state, batch, rng):
            new = super().step(state, batch, rng)
            return lf.State(B=new.B, W=new.W)

    X, y = draw([9] * 5, 6)
    one, two = (run(lf.Personalized(base=kind(**STEPS), ridge=0.1), X, y).final for kind in (Anew, lf.FedRep))
    for name, array in one.arrays().items():
        assert np.array_equal(array, two.arrays()[name])


def test_it_asks_for_what_the_base_asks_and_for_second_moments():
    class Own(lf.FedRep):
        def step(self, state, batch, rng):
            return super().step(state, batch, rng)

    assert requires_of(lf.Personalized(base=BASES["FedRep"], ridge=0.1)) is lf.Requires.QUADRATIC
    assert requires_of(lf.Personalized(base=Own(**STEPS), ridge=0.1)) is lf.Requires.ROWS


def test_the_memory_of_the_end_is_counted():
    algorithm = lf.Personalized(base=BASES["FedRep"], ridge=0.1)
    problem = lf.SharedRepresentation(n_clients=500, dim=100, rank=2)
    run = {"data": lf.FixedSamples(5), "n_rounds": 1, "participation": 1, "memory_budget": 30e6}
    assert lf.simulate(BASES["FedRep"], problem, **run).rounds[-1] == 1
    with pytest.raises(lf.SizeError, match="one trial needs"):  # 500 matrices of 100 x 100
        lf.simulate(algorithm, problem, **run)


def test_the_ridge_is_tuned_with_the_bases_step():
    problem = lf.SharedWithShortcuts(n_clients=20, dim=8, rank=2, shortcut_norm=0.5, noise_std=0.1)
    base = lf.FedRep(rank=2, step_size=0.3, init="random")
    ridges, bases = [1e-3, 0.1, 10.0], [dataclasses.replace(base, step_size=step) for step in (1e-3, 0.5)]
    tuning = lf.tune(
        lf.Personalized(base=base, ridge=1.0),
        problem,
        grid={"base": bases, "ridge": ridges},
        data=lf.FixedSamples(6),
        n_rounds=60,
        metric="parameter_error",
        score="final",
        trials=4,
    )
    assert len(tuning.settings) == 6
    assert tuning.algorithm == lf.Personalized(base=bases[1], ridge=0.1)
    assert tuning.at_grid_edge == ()


def test_a_base_for_classification_only_is_refused():
    setting = {"data": lf.FixedSamples(n_samples=10), "n_rounds": 1}
    base = lf.GeneralFLUTE(rank=2, step_size=0.1)
    problem = lf.SharedRepresentation(n_clients=8, dim=6, rank=2)
    with pytest.raises(ValueError, match="GeneralFLUTE") as expected:
        lf.simulate(base, problem, **setting)
    with pytest.raises(ValueError, match="GeneralFLUTE") as raised:
        lf.simulate(lf.Personalized(base=base, ridge=0.1), problem, **setting)
    assert str(raised.value) == str(expected.value)
