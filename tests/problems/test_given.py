"""A ground truth of the user's own, in all forms, for all trials or for each."""

import math
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from tests.helpers import normal

B, W, S = normal(5, 2), normal(6, 2, seed=1), normal(6, 5, seed=2)


FORMS = {
    "B, W": ({"B": B, "W": W}, W @ B.T, 2),
    "S": ({"S": S}, S, 5),
    "B, W, S": ({"B": B, "W": W, "S": S}, W @ B.T + S, 2),
    "Phi": ({"Phi": S}, S, 5),
    "Phi, B": ({"Phi": S, "B": B}, S, 2),
}


def projector(basis):
    Q, _ = np.linalg.qr(basis)
    return Q @ Q.T


@pytest.mark.parametrize("form", FORMS)
def test_given_truth_in_all_forms(form):
    arrays, phi, rank = FORMS[form]
    problem = lf.GivenTruth(**arrays, noise_std=0.2, design="rademacher")
    truth = problem.truth(0, [3, 1])
    np.testing.assert_allclose(truth.dense(), np.broadcast_to(phi, (2, 6, 5)), atol=1e-14)
    np.testing.assert_allclose(truth.scale, math.sqrt((phi**2).sum() / 6), rtol=1e-14)
    assert (problem.n_clients, problem.dim, problem.n_trials, problem.subspace_rank) == (6, 5, None, rank)
    assert (truth.noise_std, truth.design) == (0.2, lf.Rademacher())
    assert problem.floats_per_trial() == sum(array.size for array in arrays.values())
    reference = truth.reference(2)
    expected = B if "B" in arrays else np.linalg.svd(phi.T)[0][:, :2]
    np.testing.assert_allclose(reference[1] @ reference[1].T, projector(expected), atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axis", ["every array", "one array"])
def test_given_truth_with_a_trial_axis(form, axis):
    arrays, _, _ = FORMS[form]
    leading = {name: normal(4, *array.shape, seed=i) for i, (name, array) in enumerate(arrays.items())}
    mixed = leading if axis == "every array" else arrays | dict(list(leading.items())[-1:])
    problem = lf.GivenTruth(**mixed)
    assert problem.n_trials == 4
    assert (problem.n_clients, problem.dim) == (6, 5)
    truth = problem.truth(0, [2, 3])
    for row, trial in enumerate([2, 3]):
        own = {name: array[trial] if array.ndim == 3 else array for name, array in mixed.items()}
        expected = lf.GivenTruth(**own).truth(9, [0])
        assert np.array_equal(truth.dense()[row], expected.dense()[0])
        np.testing.assert_allclose(truth.scale[row], expected.scale[0], rtol=1e-14)


DEPENDENT = {
    "one direction twice": np.stack([B[:, 0], -3.0 * B[:, 0]], axis=1),
    "a column of zeros": B * [1.0, 0.0],
    "up to rounding": np.stack([B[:, 0], B[:, 0] * (1.0 + 1e-16 * np.arange(5))], axis=1),
}


@pytest.mark.parametrize("parts", [{"W": W}, {"Phi": S}, {"W": W, "S": S}], ids=["B, W", "B, Phi", "B, W, S"])
@pytest.mark.parametrize("name", DEPENDENT)
def test_a_given_truth_of_dependent_columns_is_refused(name, parts):
    """Its span has fewer dimensions than the basis that the distance would be measured from."""
    said = r"B of shape \(5, 2\) has rank 1, expected full column rank 2"
    with pytest.raises(ValueError, match=said):
        lf.GivenTruth(B=DEPENDENT[name], **parts)
    with pytest.raises(ValueError, match=r"B of shape \(3, 5, 2\) has rank 1 in trial 1, expected full column rank 2"):
        lf.GivenTruth(B=np.stack([B, DEPENDENT[name], B]), **parts)


def test_columns_of_any_length_have_full_rank():
    scaled = B * [1e-20, 1e20]
    truth = lf.GivenTruth(B=scaled, W=W).truth(0, [0])
    assert lf.subspace_distance(truth.reference(2)[0], B) < 1e-14


def test_given_truth_is_kept_apart_from_the_caller():
    given = B.copy()
    problem = lf.GivenTruth(B=given, W=W)
    given[:] = 0.0
    assert np.array_equal(problem.truth(0, [0]).B[0], B)
    with pytest.raises(ValueError, match="read-only"):
        problem.B[0] = 1.0


def test_scale_is_the_root_mean_square_length():
    """For each trial alone; a basis that is not orthonormal counts with its lengths."""
    bases, heads = normal(3, 5, 2) * np.array([1.0, 100.0, 1e-3])[:, None, None], normal(3, 6, 2, seed=1)
    scale = lf.GivenTruth(B=bases, W=heads).truth(0, range(3)).scale
    for trial in range(3):
        phi = heads[trial] @ bases[trial].T
        assert scale[trial] == pytest.approx(math.sqrt(np.mean([row @ row for row in phi])), rel=1e-13)


def test_given_subspace_of_all_regressors_is_taken_as_it_is():
    truth = lf.GivenTruth(Phi=S, B=3.0 * B).truth(0, [0])
    for learned in (1, 2, 4):
        np.testing.assert_allclose(
            truth.reference(learned)[0] @ truth.reference(learned)[0].T, projector(B), atol=1e-14
        )


@pytest.mark.parametrize("form", ["B, W", "S"])
def test_a_given_truth_says_nothing_of_new_clients(form):
    problem = lf.GivenTruth(**FORMS[form][0])
    with pytest.raises(ValueError, match="requires problem="):
        problem.new_clients(problem.truth(0, [0]), 3, 0, [0])


def test_given_truths_are_equal_by_value():
    parts = {"B": normal(6, 2), "W": normal(5, 2, seed=1), "noise_std": 0.1}
    one, other = lf.GivenTruth(**parts), lf.GivenTruth(**parts | {"B": parts["B"].tolist()})
    run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.1), problem=one, data=lf.FreshSamples(8), n_rounds=2)
    assert one == other
    assert hash(one) == hash(other)
    assert run == replace(run, problem=other)
    assert one.subspace_rank == 2  # a value that is computed once does not count
    assert one == other != lf.GivenTruth(**parts | {"noise_std": 0.2})
