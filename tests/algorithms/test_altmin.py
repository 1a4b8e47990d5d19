"""Alternating minimisation: AltGDmin, AltMin and TPGD, and that methods of descent descend."""

import itertools

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, basis, normal
from tests.worlds import draw_world, of_classes, one_sample

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def test_altgdmin_is_fedrep_with_a_step_n_m_times_as_large():
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    run = {"data": world.data(), "n_rounds": 20}
    one = lf.simulate(lf.AltGDmin(rank=2, step_size=0.005, init=world.B), **run)
    other = lf.simulate(lf.FedRep(rank=2, step_size=0.005 * 6 * 9, init=world.B), **run)
    np.testing.assert_allclose(one.final.B, other.final.B, **TOLERANCE)
    np.testing.assert_allclose(one.final.W, other.final.W, **TOLERANCE)


@pytest.mark.parametrize("threshold", [0.5, 9.0, np.inf])
def test_the_initialisation_is_that_of_the_truncated_averages(threshold):
    world = draw_world([9, 4, 12, 7], 5, 2, noise=0.2, seed=4)
    B = lf.simulate(lf.AltGDmin(rank=2, threshold=threshold), data=world.data(), n_rounds=0).final.B[0]
    expected, values = ref.truncated_averages(world.X, world.y, 2, threshold)
    assert values[1] > 1.1 * values[2]
    np.testing.assert_allclose(B @ B.T, expected @ expected.T, **TOLERANCE)
    given = lf.simulate(lf.FedRep(rank=2, step_size=1.0, init=lf.TruncatedAverages(threshold=threshold)),
                        data=world.data(), n_rounds=0).final.B[0]  # fmt: skip
    np.testing.assert_array_equal(B, given)


def test_all_samples_count_with_an_infinite_threshold():
    world = draw_world([9, 4, 12, 7], 5, 2, noise=0.2, seed=4)
    B = lf.simulate(lf.AltGDmin(rank=2, threshold=np.inf), data=world.data(), n_rounds=0).final.B[0]
    gram = lf.simulate(lf.LocalGram(rank=2), data=world.data(), n_rounds=1).final.B[0]
    np.testing.assert_allclose(B @ B.T, gram @ gram.T, **TOLERANCE)


def test_the_penalty_may_come_at_once():
    world, W = draw_world([9] * 4, 5, 2, noise=0.2, seed=4), normal(4, 2)
    options = {"rank": 2, "step_size": 0.02, "init": (world.B, W)}
    one, other = (
        lf.simulate(algorithm, data=world.data(), n_rounds=5).final
        for algorithm in (lf.TPGD(first_phase=0, **options), lf.FLUTE(**options))
    )
    np.testing.assert_allclose(one.B, other.B, **TOLERANCE)
    np.testing.assert_allclose(one.W, other.W, **TOLERANCE)


@pytest.mark.parametrize("scale", [1e-5, 1e4])
def test_the_units_of_the_samples_do_not_matter_to_alternating_minimisation(scale):
    """With 10 samples for the 12 entries of B."""
    world = draw_world([5] * 2, 6, 2, noise=0.3, seed=5)
    X, y = np.array(world.X), np.array(world.y)
    one, other = (
        lf.simulate(lf.AltMin(rank=2, init=world.B), data=lf.GivenSamples(factor * X, factor * y), n_rounds=1).final
        for factor in (1.0, scale)
    )
    np.testing.assert_allclose(other.B, one.B, rtol=0, atol=1e-8)
    np.testing.assert_allclose(other.W, one.W, rtol=0, atol=1e-8)
    assert ref.subspace_distance(one.B[0], world.B) > 0.01


@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
def test_badly_scaled_coordinates_cost_alternating_minimisation_no_digits():
    """The normal equations have condition number 1e8, and their solution alone an error of 1e-7."""
    world = draw_world([9] * 6, 5, 2, noise=0.3, seed=5)
    X = [X_i * [1.0, 1.0, 1.0, 1.0, 1e-4] for X_i in world.X]
    final = lf.simulate(lf.AltMin(rank=2, init=world.B), data=lf.GivenSamples(X, world.y), n_rounds=1).final
    rows = [np.kron(x, w) for X_i, w in zip(X, final.W[0], strict=True) for x in X_i]
    wanted = np.linalg.lstsq(np.array(rows), np.concatenate(world.y))[0].reshape(5, 2)
    np.testing.assert_allclose(final.B[0], ref.qr_positive(wanted)[0], rtol=0, atol=1e-10)


DESCENT = {
    "AltMin": (lf.AltMin, {}),
    "AltMin, of another rank": (lf.AltMin, {"rank": 4, "init": "random"}),
    "BurerMonteiro": (lf.BurerMonteiro, {"iterations": 3}),
    "FedRep": (lf.FedRep, {"step_size": 0.05}),
    "FedRep, exact heads turned": (lf.FedRep, {"step_size": 0.05, "rotate_heads": True}),
    "FedRep, gradient heads turned": (
        lf.FedRep, {"step_size": 0.05, "heads": lf.GradientHeads(steps=2), "rotate_heads": True},
    ),
    "AltGDmin": (lf.AltGDmin, {"step_size": 1e-4}),
    "TPGD": (lf.TPGD, {"step_size": 1e-3, "first_phase": 40, "init": lf.SmallRandom(0.1)}),
    "FedPer": (lf.FedPer, {"step_size": 0.05}),
    "LGFedAvg": (lf.LGFedAvg, {"step_size": 0.05}),
    "FedAvg of two layers": (lf.FedAvg, {"step_size": 0.05}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
@pytest.mark.parametrize("name", DESCENT)
def test_the_recorded_loss_of_a_descent_method_never_rises(name):
    """The features are correlated, as in a table: then R of ``B = Q R`` is far from the identity."""
    kind, options = DESCENT[name]
    world = draw_world([25] * 8, 10, 3, noise=0.3, seed=5)
    mix = normal(10, 10, seed=6) * np.geomspace(1, 0.05, 10) / np.sqrt(10)
    data = lf.GivenSamples([X @ mix for X in world.X], world.y)
    losses = lf.simulate(kind(**{"rank": 3, "init": world.B} | options), data=data, n_rounds=40).metrics["train_loss"][
        0
    ]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(losses))
    assert losses[-1] < losses[0]


def test_alternating_minimisation_turns_all_heads():
    """Also the head of a client that did not take part belongs to the new B: its predictor is that of the minimiser."""
    world = draw_world([7] * 8, 6, 2, noise=0.5, seed=5)
    algorithm, participants = lf.AltMin(rank=2, init=world.B), np.array([np.arange(8), [0, 1, 3, 4, 5, 6, 7, 2]])[:, :7]
    _, first, second = lf.iterate(algorithm, data=world.data(), n_rounds=2, participation=np.sort(participants))
    heads = [ref.least_squares(world.X[i] @ first.after.B[0], world.y[i]) for i in participants[1]]
    rows = [np.kron(x, w) for i, w in zip(participants[1], heads, strict=True) for x in world.X[i]]
    minimiser = np.linalg.lstsq(np.array(rows), np.concatenate([world.y[i] for i in participants[1]]))[0].reshape(6, 2)
    expected = [*(minimiser @ w for w in heads), minimiser @ first.after.W[0, 2]]
    found = second.after.predictors()[0][[*participants[1], 2]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_where_heads_explain_all_samples_nothing_that_minimises_the_loss_moves():
    """m = k: FedRep, AltGDmin, AltMin and the joint minimiser keep the span of B; the local averages do not."""
    problem = lf.SharedRepresentation(n_clients=500, dim=8, rank=2)
    B = basis(8, 2)
    for algorithm in (
        lf.AltGDmin(rank=2, init=B), lf.AltMin(rank=2, init=B), lf.BurerMonteiro(rank=2, init=B),
    ):  # fmt: skip
        curve = lf.simulate(algorithm, problem, data=lf.FixedSamples(2), n_rounds=3).metrics["subspace_distance"][0]
        assert curve[-1] == pytest.approx(curve[0], abs=1e-9)
        assert curve[0] > 0.5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: one_sample(lf.MAML(rank=1, step_size=0.1, adaptation_step_size=0.1, disjoint_samples=True)),
            ["n_samples = 1 must be at least 2"],
        ),
        (lambda: of_classes(lf.MAML(rank=2, step_size=0.1, adaptation_step_size=0.1)), ["MAML", "2 classes"]),
        (
            lambda: of_classes(lf.ANIL(rank=2, step_size=0.1, adaptation_step_size=0.1, hessian=True)),
            ["hessian = True supports only regression", "2 classes"],
        ),
        (lambda: one_sample(lf.AltMin(rank=1, disjoint_samples=True)), ["n_samples = 1 must be at least 2"]),
        (lambda: one_sample(lf.NuclearNorm(rank=4)), ["rank = 4 must be at most dim = 3"]),
        (lambda: of_classes(lf.AltMin(rank=2)), ["AltMin supports only regression", "2 classes"]),
    ],
)  # fmt: skip
def test_an_invalid_option_is_named(call, words):
    assert_one_line(call, words)


def test_a_trial_whose_first_labels_are_0_takes_its_step_size_later():
    """Whatever the other trials have: the first participant of the second one has a head of 0."""
    W = np.array([[[1.0], [1.0]], [[0.0], [1.0]]])
    problem = lf.GivenTruth(B=np.broadcast_to(np.eye(4, 1), (2, 4, 1)), W=W)
    participants = np.array([[[0], [1], [1], [1]]] * 2)
    run = {"data": lf.FixedSamples(9), "n_rounds": 4, "engine": "explicit"}
    both = lf.simulate(lf.AltGDmin(rank=1, init="random"), problem, participation=participants, trials=2, **run)
    assert both.status == [lf.Status.COMPLETED] * 2
    assert (both.final.norm > 0).all()


@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
def test_a_ridge_keeps_the_head_of_a_client_with_a_rare_category_short():
    """One training sample of a client has the category, with a value that no other client supports."""
    X, B = normal(8, 12, 5), np.linalg.qr(normal(5, 2, seed=1))[0]
    X[..., 4] = 0.0
    X[0, 0, 4] = 1e-3
    y = np.einsum("nmd,dk,nk->nm", X, B, normal(8, 2, seed=2)) + 0.1 * normal(8, 12, seed=3)
    new = X[:, :1] + np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    data = lf.GivenSamples(X, y, test=(new, np.zeros((8, 1))))
    free, ridged = (
        lf.simulate(lf.AltMin(rank=4, ridge=ridge, init="random"), data=data, n_rounds=30) for ridge in (0.0, 0.1)
    )
    assert ridged.metrics["test_loss"][0, -1] < 0.1 * free.metrics["test_loss"][0, -1]
    heads = [ref.least_squares(x @ ridged.final.B[0], z, 0.1) for x, z in zip(X, y, strict=True)]
    np.testing.assert_allclose(ridged.adapt(X, y).state.W[0], heads, rtol=1e-9)
