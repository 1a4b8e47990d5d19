"""Ground truths: the subspace that a representation is held against, and noise that differs between clients."""

import itertools

import numpy as np
import pytest

import linfed as lf
from linfed.problems.base import not_unique
from tests.helpers import assert_one_line, basis, normal

LEVELS, COUNTS = (0.1, 0.2, 0.4, 0.8, 1.0, 0.3), (7, 30, 6, 12, 9, 18)
FEDREP = lf.FedRep(rank=2, step_size=0.3, init=basis(8, 2, seed=23))


# --- what a representation is held against -------------------------------------------------------------------


def projector(basis):
    Q, _ = np.linalg.qr(basis)
    return Q @ Q.T


def low_rank_truth(rank, trials=3):
    bases, heads = normal(trials, 7, rank), normal(trials, 9, rank, seed=1)
    return lf.GivenTruth(B=bases, W=heads).truth(0, range(trials)), heads @ np.swapaxes(bases, -1, -2)


@pytest.mark.parametrize("learned", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("rank", [3, 5])
def test_the_reference_is_the_span_or_the_top_singular_subspace(rank, learned):
    truth, phi = low_rank_truth(rank)
    for star, rows, reference in zip(truth.B, phi, truth.reference(learned), strict=True):
        top = star if rank <= learned else np.linalg.svd(rows.T)[0][:, :learned]
        assert reference.shape == (7, min(rank, learned))
        np.testing.assert_allclose(reference @ reference.T, projector(top), atol=1e-12)
        np.testing.assert_allclose(reference.T @ reference, np.eye(min(rank, learned)), atol=1e-13)


def test_reference_beside_full_dimensional_parts_is_the_shared_span():
    """With shortcuts the shared factor stays the reference; where fewer columns are learned, its best subspace."""
    B, W = normal(5, 2), normal(6, 2, seed=1)
    truth = lf.GivenTruth(B=B, W=W, S=normal(6, 5, seed=2)).truth(0, [0])
    best = np.linalg.svd(B @ W.T)[0][:, :1]
    for learned, expected in ((1, best), (2, B), (3, B)):
        np.testing.assert_allclose(
            truth.reference(learned)[0] @ truth.reference(learned)[0].T, projector(expected), atol=1e-14
        )


def test_the_trial_whose_top_subspace_is_not_unique_is_named():
    alone = " of the regressors are equal: their best subspace of 2 dimensions is not unique"
    assert not_unique(np.array([[3.0, 1.0, 1.0]]), 2) == f"singular values 2 and 3{alone}"
    equal, zero = np.array([[3.0, 1.0, 1.0], [3.0, 2.0, 1.0]])[::-1], np.array([[1.0, 0.0], [0.0, 0.0]])
    assert not_unique(equal, 2) == f"singular values 2 and 3{alone.replace(':', ' in trial 1:')}"
    assert not_unique(equal, 3) == not_unique(zero[:1], 1) == not_unique(equal[:1], 2) == ""
    assert not_unique(zero, 1) == "all regressors are 0 in trial 1: they have no subspace"
    assert not_unique(zero[1:], 1) == "all regressors are 0: they have no subspace"


@pytest.mark.parametrize("rank", [-1, 0, 7, 1.0, True, None])
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


# --- noise of each client -------------------------------------------------------------------------------------


def problem(noise_std=LEVELS):
    return lf.GivenTruth(B=basis(8, 2, seed=20), W=normal(6, 2, seed=21), noise_std=noise_std)


@pytest.mark.parametrize(
    "data", [lf.FreshSamples(5), lf.FreshSamples(COUNTS), lf.FixedSamples(12)], ids=["fresh", "unequal", "fixed"]
)
def test_each_client_has_its_own_noise(data):
    """The noise is that of level 1 times the client's level, for the participants of every round."""
    rounds = {"data": data, "n_rounds": 2, "trials": 2, "participation": 0.5, "engine": "explicit"}
    found = []
    for levels in (LEVELS, 1.0):
        here, kept = problem(levels), []
        for step in itertools.islice(lf.iterate(FEDREP, here, **rounds), 1, None):
            phi = here.truth(0, [0]).dense()[0][step.batch.active]
            kept.append((step.batch.active, step.batch.y - np.einsum("tpmd,tpd->tpm", step.batch.X, phi)))
        found.append(kept)
    for (active, noise), (_, unit) in zip(*found, strict=True):
        np.testing.assert_allclose(noise, np.array(LEVELS)[active][..., None] * unit, atol=1e-12)
        assert np.abs(unit).max() > 0.1


def test_fixed_samples_have_that_noise_in_every_engine():
    runs = [
        lf.simulate(FEDREP, problem(), data=lf.FixedSamples(30), n_rounds=9, trials=2, engine=engine)
        for engine in ("explicit", "compressed")
    ]
    for name, values in runs[0].metrics.items():
        np.testing.assert_allclose(runs[1].metrics[name], values, rtol=1e-9)
    drawn = lf.FixedSamples(30).draw(problem(), trials=2)
    same = lf.simulate(FEDREP, problem(), data=drawn, n_rounds=9)
    np.testing.assert_allclose(same.metrics["risk"], runs[0].metrics["risk"], rtol=1e-9)


def test_the_risk_has_each_clients_noise():
    result = lf.simulate(FEDREP, problem(), data=lf.FreshSamples(COUNTS), n_rounds=3, engine="explicit")
    Theta, Phi = result.final.predictors()[0], problem().truth(0, [0]).dense()[0]
    wanted = 0.5 * ((Theta - Phi) ** 2).sum(axis=1) + 0.5 * np.square(LEVELS)
    assert result.metrics["risk"][0, -1] == pytest.approx(wanted.mean(), rel=1e-12)
    np.testing.assert_allclose(result.per_client("risk")[0], wanted, rtol=1e-12)
    single = lf.theory.single_model_floor(problem().truth(0, [0]))[0]
    assert single == pytest.approx(0.5 * ((Phi - Phi.mean(axis=0)) ** 2).sum() / 6 + 0.5 * np.mean(np.square(LEVELS)))


def test_new_clients_of_a_problem_with_given_noise():
    drawn = lf.SharedRepresentation(n_clients=6, dim=8, rank=2, noise_std=LEVELS)
    result = lf.simulate(FEDREP, drawn, data=lf.FreshSamples(9), n_rounds=2)
    assert_one_line(lambda: result.new_clients([5]), ["problem=", "noise_std", "each training client"])
    found = result.new_clients([4, 40], problem=drawn)
    assert found.shape == (1, 2, 6)
    assert (found >= 0.5 * np.square(LEVELS)).all()


def test_equal_levels_are_one_level():
    for make in (
        lambda noise: lf.SharedRepresentation(n_clients=6, dim=8, rank=2, noise_std=noise),
        lambda noise: lf.UnderParameterized(n_clients=6, dim=8, noise_std=noise),
        lambda noise: lf.SharedWithShortcuts(n_clients=6, dim=8, rank=2, shortcut_norm=0.3, noise_std=noise),
        lambda noise: lf.SimilarRepresentations(n_clients=6, dim=8, rank=2, deviation=0.3, noise_std=noise),
        problem,
    ):
        results = [
            lf.simulate(FEDREP, make(noise), data=data, n_rounds=4, engine=engine)
            for noise in (0.5, [0.5] * 6)
            for data, engine in (
                (lf.FreshSamples(12), "explicit"),
                (lf.FreshSamples(12), "projected"),
                (lf.FreshSamples(12), "compressed"),
                (lf.FixedSamples(5), "explicit"),
            )
        ]
        for one, other in zip(results[:4], results[4:], strict=True):
            np.testing.assert_array_equal(one.metrics["risk"], other.metrics["risk"])


def test_wrong_levels_are_named():
    assert_one_line(lambda: problem((0.1, 0.2)), ["noise_std has 2 numbers", "n_clients = 6"])
    assert_one_line(lambda: problem((0.1, -1.0, 0, 0, 0, 0)), ["noise_std[1] = -1.0", "at least 0"])


def test_heads_belong_to_an_orthonormal_representation():
    truth = lf.Truth(B=normal(2, 6, 3), W=normal(2, 5, 3, seed=1))
    for t, heads in enumerate(truth.orthonormal_heads()):
        Q, R = np.linalg.qr(truth.B[t])
        np.testing.assert_allclose(heads @ (Q * np.sign(np.diag(R))).T, truth.dense()[t], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="requires a ground truth with factors B and W"):
        lf.Truth(S=normal(2, 5, 6)).orthonormal_heads()


SIZES = {"n_clients": 6, "dim": 8, "rank": 2}
LENGTHS = {
    "head_norm": lambda value: lf.SharedRepresentation(**SIZES, head_norm=value),
    "shortcut_norm": lambda value: lf.SharedWithShortcuts(**SIZES, shortcut_norm=value),
    "deviation": lambda value: lf.SimilarRepresentations(**SIZES, deviation=value),
    "outlier_norm": lambda value: lf.SimilarRepresentations(**SIZES, outliers=0.2, outlier_norm=value),
    "separation": lambda value: lf.Classes(n_clients=6, dim=8, n_classes=3, classes_per_client=2, separation=value),
    "spectrum[0]": lambda value: lf.UnderParameterized(n_clients=6, dim=8, spectrum=[value, 1.0]),
    "gap": lambda value: lf.UnderParameterized(n_clients=6, dim=8, gap=value, gap_after=1),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_have_the_limit_of_the_noise(name):
    assert_one_line(lambda: LENGTHS[name](1e200), [f"{name} = ", "1e+200", "1e+70"])
    LENGTHS[name](1e70)


def test_a_ground_truth_has_a_part():
    assert_one_line(lf.Truth, ["Truth requires B and W, or S"])
