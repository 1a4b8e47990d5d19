"""Truths: what the families promise exactly, and what a truth of one's own is taken to be."""

import math
import pickle

import numpy as np
import pytest

import linfed as lf
from linfed.problems import shared
from tests.helpers import each, normal

TRIALS = range(4)


def projector(basis):
    Q, _ = np.linalg.qr(basis)
    return Q @ Q.T


# --- shared representation -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "k"), [(20, 7, 3), (3, 5, 3), (2, 4, 3), (5, 4, 4), (9, 6, 1), (1, 1, 1)])
def test_shared_representation_has_orthonormal_columns_and_heads_of_one_length(n, d, k):
    problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=0.5)
    truth = problem.truth(0, TRIALS)
    assert (truth.B.shape, truth.W.shape, truth.S) == ((4, d, k), (4, n, k), None)
    np.testing.assert_allclose(
        np.swapaxes(truth.B, -1, -2) @ truth.B, np.broadcast_to(np.eye(k), (4, k, k)), atol=1e-14
    )
    np.testing.assert_allclose(np.sqrt(np.vecdot(truth.W, truth.W)), math.sqrt(k), rtol=1e-14)
    np.testing.assert_allclose(truth.scale, math.sqrt(k), rtol=1e-14)
    assert (problem.n_clients, problem.dim, problem.rank, problem.subspace_rank) == (n, d, k, k)
    assert (truth.noise_std, truth.design) == (0.5, lf.Gaussian())
    assert problem.floats_per_trial() == truth.B[0].size + truth.W[0].size


@pytest.mark.parametrize("norm", [1e-3, 1, 250.0])
def test_head_norm(norm):
    truth = lf.SharedRepresentation(n_clients=6, dim=4, rank=2, head_norm=norm).truth(0, TRIALS)
    np.testing.assert_allclose(np.sqrt(np.vecdot(truth.W, truth.W)), norm, rtol=1e-14)


@pytest.mark.parametrize(
    ("n", "k", "kappa"),
    [(30, 3, 1.0), (30, 3, 2.5), (100, 5, 10.0), (4, 2, 30.0), (3, 3, 1.0), (7, 1, 1.0), (40, 2, 1e4)],
)
def test_condition_number_is_exact_and_heads_keep_their_length(n, k, kappa):
    problem = lf.SharedRepresentation(n_clients=n, dim=6, rank=k, condition_number=kappa, head_norm=2.0)
    for W in problem.truth(3, TRIALS).W:
        values = np.linalg.svd(W, compute_uv=False)
        expected = np.geomspace(kappa, 1.0, k)
        expected *= 2.0 * math.sqrt(n) / math.sqrt((expected**2).sum())
        # Heads have their length to 1e-12, and that moves each singular value by as much of the largest.
        np.testing.assert_allclose(values, expected, atol=2e-12 * expected[0])
        np.testing.assert_allclose(np.sqrt(np.vecdot(W, W)), 2.0, rtol=1e-14)


def test_a_condition_number_keeps_the_trials_apart():
    W = lf.SharedRepresentation(n_clients=9, dim=4, rank=2, condition_number=3.0).truth(0, TRIALS).W
    assert len({heads.tobytes() for heads in W}) == 4


@pytest.mark.parametrize("kappa", [None, 3.0])
def test_a_truth_depends_on_seed_and_trial_alone(kappa):
    problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=2, condition_number=kappa)
    truth, alone, other = problem.truth(1, range(8)), problem.truth(1, [7]), problem.truth(2, range(8))
    assert truth.B[7].tobytes() == alone.B[0].tobytes()
    assert truth.W[7].tobytes() == alone.W[0].tobytes()
    assert not np.isclose(truth.B, other.B).any()
    # Noise and law of x are no part of the draw: figures over them compare one truth.
    noisy = lf.SharedRepresentation(n_clients=9, dim=5, rank=2, condition_number=kappa, noise_std=1.0, design="cube")
    assert np.array_equal(noisy.truth(1, range(8)).W, truth.W)


def test_shared_representation_is_a_value():
    problem = lf.SharedRepresentation(n_clients=np.int64(5), dim=4, rank=2, design="sphere")
    assert problem == lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=lf.UniformSphere())
    assert hash(problem) == hash(pickle.loads(pickle.dumps(problem)))
    assert eval(repr(problem), {name: getattr(lf, name) for name in lf.__all__}) == problem
    with pytest.raises(AttributeError):
        problem.rank = 3


# --- clients that took no part -------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [None, 1.0, 3.0])
def test_new_clients_depend_on_seed_and_trial_alone(kappa):
    problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=2, condition_number=kappa, noise_std=0.2)
    truth = problem.truth(1, range(4))
    new = problem.new_clients(truth, 12, 6, range(4))
    alone = problem.new_clients(problem.truth(1, [3]), 12, 6, [3])
    assert alone.W[0].tobytes() == new.W[3].tobytes()
    assert np.array_equal(new.B, truth.B)
    assert (new.S, new.noise_std) == (None, 0.2)
    assert not np.isclose(problem.new_clients(truth, 12, 7, range(4)).W, new.W).any()
    fewer = problem.new_clients(truth, 5 if kappa is None else 12, 6, range(4)).W[:, :5]
    assert np.array_equal(fewer, new.W[:, :5])


def test_new_clients_are_others_at_the_seed_of_the_truth():
    """Their heads are neither the old ones, nor made of the numbers that B* is made of: of rank 1, by their signs."""
    problem = lf.SharedRepresentation(n_clients=60, dim=60, rank=1)
    truth = problem.truth(3, range(4))
    heads = problem.new_clients(truth, 60, 3, range(4)).W
    for given in (truth.B, truth.W):
        same = (np.sign(heads) == np.sign(given)).mean(axis=(1, 2))
        assert (np.abs(same - 0.5) < 0.3).all()


@each("clients", [1, 8, 9, 10, 60])
@pytest.mark.parametrize(("rank", "kappa"), [(3, 4.0), (2, 1.0), (1, 1.0), (2, 1e3)])
def test_new_heads_have_the_second_moment_of_the_prescribed_ones(rank, kappa, clients):
    problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=rank, condition_number=kappa, head_norm=2.0)
    truth = problem.truth(1, range(2))
    new = problem.new_clients(truth, clients, 6, range(2)).W
    assert new.shape == (2, clients, rank)
    np.testing.assert_allclose(np.sqrt(np.vecdot(new, new)), 2.0, rtol=1e-11)
    for W, heads in zip(truth.W, new, strict=True):
        if clients >= 9:
            np.testing.assert_allclose(heads.T @ heads / clients, W.T @ W / 9, rtol=0, atol=1e-11)
        if rank > 1:
            assert not np.isin(heads, W).any()
    if clients < 9:  # so many of those that would take part
        assert np.array_equal(new, problem.new_clients(truth, 9, 6, range(2)).W[:, :clients])


@pytest.mark.parametrize("kappa", [1e9, 1e12])
def test_an_extreme_condition_number_is_no_obstacle_to_new_clients(kappa):
    problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=4, condition_number=kappa)
    truth = problem.truth(0, range(2))
    new = problem.new_clients(truth, 12, 0, range(2)).W
    for W, heads in zip(truth.W, new, strict=True):
        np.testing.assert_allclose(heads.T @ heads / 12, W.T @ W / 9, rtol=0, atol=1e-11)


def test_heads_that_cannot_be_say_so():
    with pytest.raises(ValueError, match=r"condition_number = 2 with heads of equal length.*n_clients = 1, rank = 2"):
        shared._with_moment_of(np.eye(2), np.array([[1.0, 0.0]]), 2.0)


@pytest.mark.parametrize("form", ["B, W", "S"])
def test_a_given_truth_says_nothing_of_new_clients(form):
    problem = lf.GivenTruth(**FORMS[form][0])
    with pytest.raises(
        ValueError, match=r"requires problem=, the ground truth of the new clients, e.g. problem=lf.GivenTruth"
    ):
        problem.new_clients(problem.truth(0, [0]), 3, 0, [0])


# --- a truth of one's own ------------------------------------------------------------------------------------

B, W, S = normal(5, 2), normal(6, 2, seed=1), normal(6, 5, seed=2)
FORMS = {
    "B, W": ({"B": B, "W": W}, W @ B.T, 2),
    "S": ({"S": S}, S, 5),
    "B, W, S": ({"B": B, "W": W, "S": S}, W @ B.T + S, 2),
    "Phi": ({"Phi": S}, S, 5),
    "Phi, B": ({"Phi": S, "B": B}, S, 2),
}


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


# --- what a representation is held against -------------------------------------------------------------------


def low_rank_truth(rank, trials=3):
    bases, heads = normal(trials, 7, rank), normal(trials, 9, rank, seed=1)
    return lf.GivenTruth(B=bases, W=heads).truth(0, range(trials)), heads @ np.swapaxes(bases, -1, -2)


@pytest.mark.parametrize("learned", [3, 4, 7])
def test_reference_of_a_truth_of_at_most_the_learned_rank_is_its_span(learned):
    truth, _ = low_rank_truth(3)
    for basis, reference in zip(truth.B, truth.reference(learned), strict=True):
        assert reference.shape == (7, 3)
        np.testing.assert_allclose(reference @ reference.T, projector(basis), atol=1e-13)


@pytest.mark.parametrize("learned", [1, 2, 4])
def test_reference_of_a_truth_of_larger_rank_is_its_top_singular_subspace(learned):
    truth, phi = low_rank_truth(5)
    for rows, reference in zip(phi, truth.reference(learned), strict=True):
        top = np.linalg.svd(rows.T)[0][:, :learned]
        assert reference.shape == (7, learned)
        np.testing.assert_allclose(reference @ reference.T, top @ top.T, atol=1e-12)
        np.testing.assert_allclose(reference.T @ reference, np.eye(learned), atol=1e-13)


@each("rank", [-1, 0, 7, 1.0, True, None])
def test_a_rank_that_cannot_be_is_refused(rank):
    classes = lf.Classes(n_clients=4, dim=6, n_classes=3, classes_per_client=2, rank=2)
    truths = [
        lf.SharedRepresentation(n_clients=9, dim=6, rank=2).truth(0, [0]),
        lf.UnderParameterized(n_clients=9, dim=6).truth(0, [0]),
        lf.SharedWithShortcuts(n_clients=9, dim=6, rank=2, shortcut_norm=0.5).truth(0, [0]),
        classes.truth(0, [0]),
    ]
    for truth in truths:
        assert truth.dim == 6
        for question in (truth.reference, truth.truncated)[: 1 if truth is truths[-1] else 2]:
            with pytest.raises(ValueError, match=r"^rank = .* must be an integer (of at least 1|from 1 to 6)$"):
                question(rank)
            question(6)


def test_reference_beside_full_dimensional_parts_is_the_shared_span():
    """With shortcuts the shared factor stays the reference; where fewer columns are learned, its best subspace."""
    truth = lf.GivenTruth(B=B, W=W, S=S).truth(0, [0])
    best = np.linalg.svd(B @ W.T)[0][:, :1]
    for learned, expected in ((1, best), (2, B), (3, B)):
        np.testing.assert_allclose(
            truth.reference(learned)[0] @ truth.reference(learned)[0].T, projector(expected), atol=1e-14
        )


def test_given_subspace_of_all_regressors_is_taken_as_it_is():
    truth = lf.GivenTruth(Phi=S, B=3.0 * B).truth(0, [0])
    for learned in (1, 2, 4):
        np.testing.assert_allclose(
            truth.reference(learned)[0] @ truth.reference(learned)[0].T, projector(B), atol=1e-14
        )
