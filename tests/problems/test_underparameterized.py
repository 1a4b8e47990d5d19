"""Under-parameterised truths: what the family promises exactly, its laws, references and truncations."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
import scipy.linalg
from scipy import stats

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, normal

TRIALS = range(4)
FAMILY = 1e-3
NAN = float("nan")


def problem(n=7, d=9, **more):
    return lf.UnderParameterized(n_clients=n, dim=d, **more)


def svd(Phi):
    """Return U, the singular values and V of ``[phi_1 .. phi_n]``, for rows phi_i."""
    V, values, Ut = scipy.linalg.svd(Phi, full_matrices=False)
    return Ut.T, values, V


SIZES = {"n < d": (5, 9), "n == d": (7, 7), "n > d": (12, 6)}
SPECTRUM = (4.0, 2.0, 2.0, 0.5)


# name: the form, its rank if it is not min(n, d), and its singular values if they are prescribed
FORMS = {
    "Gaussian": ({}, None, None),
    "rank": ({"rank": 3}, 3, None),
    "rank 1": ({"rank": 1}, 1, None),
    "spectrum": ({"spectrum": SPECTRUM}, 4, SPECTRUM),
    "spectrum of full rank": ({"spectrum": [5, 4, 3, 2, 1]}, 5, [5, 4, 3, 2, 1]),
    "spectrum and rank": ({"spectrum": np.array(SPECTRUM), "rank": 4}, 4, SPECTRUM),
    "spectrum with a gap": ({"spectrum": SPECTRUM, "gap": 3.0, "gap_after": 1}, 4, [4.0, 2.5, 2.5, 0.625]),
    "spectrum with the largest gap": ({"spectrum": SPECTRUM, "gap": 4.0, "gap_after": 3}, 4, [4.0, 2.0, 2.0, 0.0]),
    "ill-conditioned": ({"spectrum": np.geomspace(1.0, 1e-7, 5)}, 5, np.geomspace(1.0, 1e-7, 5)),
}


GAPS = {
    "Gaussian with a gap": {"gap": 0.4, "gap_after": 2},
    "Gaussian with a tiny gap": {"gap": 1e-9, "gap_after": 1},
    "rank with a gap": {"rank": 4, "gap": 0.7, "gap_after": 3},
    "rank with a gap at once": {"rank": 2, "gap": 0.2, "gap_after": 1},
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_its_sizes_rank_and_singular_values(form, sizes):
    (n, d), (options, rank, wanted) = SIZES[sizes], FORMS[form]
    made = problem(n, d, **options, noise_std=0.2, design="cube")
    truth, r = made.truth(3, TRIALS), rank or min(n, d)
    Phi = truth.dense()
    assert Phi.shape == (4, n, d)
    assert (made.n_clients, made.dim, made.truth_size, made.subspace_rank) == (n, d, r, r)
    assert (truth.noise_std, truth.design) == (0.2, lf.UniformCube())
    assert made.floats_per_trial() == sum(part[0].size for part in (truth.B, truth.W, truth.S) if part is not None)
    factored = wanted is not None or r < min(n, d)
    assert made.truth_rank == (r if factored else None)
    assert (truth.S is None, truth.B is None, truth.W is None) == (factored, not factored, not factored)
    np.testing.assert_allclose(truth.scale, np.sqrt((Phi**2).sum(axis=(1, 2)) / n), rtol=1e-13)
    for trial, rows in enumerate(Phi):
        values = svd(rows)[1]
        if wanted is not None:
            np.testing.assert_allclose(values[:r], wanted, rtol=1e-13, atol=1e-15 * wanted[0])
        else:
            assert values[r - 1] > 1e-3
        assert (values[r:] < 1e-13 * values[0]).all()
        if factored:
            np.testing.assert_allclose(truth.B[trial].T @ truth.B[trial], np.eye(r), atol=1e-14)
        if wanted is not None:
            gram = truth.W[trial].T @ truth.W[trial]
            np.testing.assert_allclose(gram, np.diag(np.square(wanted)), rtol=1e-13, atol=1e-14 * wanted[0] ** 2)
    assert len({rows.tobytes() for rows in Phi}) == 4


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", GAPS)
def test_a_gap_scales_the_following_singular_values_together(form, sizes):
    options = GAPS[form]
    plain = {"rank": options["rank"]} if "rank" in options else {}
    k, n, d = options["gap_after"], *SIZES[sizes]
    with_gap, without = (problem(n, d, **chosen).truth(3, TRIALS) for chosen in (options, plain))
    assert with_gap.S is None
    for rows, others in zip(with_gap.dense(), without.dense(), strict=True):
        values, (U, old, _) = svd(rows)[1], svd(others)
        r = plain.get("rank", min(n, d))
        assert 2 * (values[k - 1] - values[k]) == pytest.approx(options["gap"], rel=1e-6, abs=1e-13)
        np.testing.assert_allclose(values[:k], old[:k], rtol=1e-12)
        np.testing.assert_allclose(values[k:r] / old[k:r], values[k] / old[k], rtol=1e-10)
        # The singular vectors are those of the truth without a gap.
        scale = np.where(np.arange(r) < k, 1.0, values[k] / old[k])
        np.testing.assert_allclose(rows @ U[:, :r], others @ U[:, :r] * scale, atol=1e-11)


@pytest.mark.parametrize("form", [*FORMS, *GAPS])
def test_a_truth_depends_on_seed_and_trial_alone(form):
    options = FORMS[form][0] if form in FORMS else GAPS[form]
    made = problem(**options)
    eight, alone, other = made.truth(1, range(8)), made.truth(1, [6]), made.truth(2, range(8))
    assert eight.dense()[6].tobytes() == alone.dense()[0].tobytes()
    assert not np.isclose(eight.dense(), other.dense(), rtol=1e-12, atol=0).any()
    noisy = dataclasses.replace(made, noise_std=1.0, design="rademacher")
    assert np.array_equal(noisy.truth(1, range(8)).dense(), eight.dense())


@pytest.mark.parametrize("form", ["Gaussian", "spectrum and rank", "spectrum with a gap", "rank with a gap"])
def test_a_problem_is_a_value(form):
    options = FORMS[form][0] if form in FORMS else GAPS[form]
    made = problem(**options)
    listed = {key: list(value) if key == "spectrum" else value for key, value in options.items()}
    assert made == problem(np.int64(7), 9, **listed)
    assert hash(made) == hash(pickle.loads(pickle.dumps(made)))
    assert eval(repr(made), {name: getattr(lf, name) for name in lf.__all__}) == made
    with pytest.raises(AttributeError):
        made.rank = 2
    assert made != dataclasses.replace(made, noise_std=0.1)


def test_factors_serve_many_clients_and_dimensions():
    """Nothing of size (n, d), which would be 80 GB."""
    made = problem(10**5, 10**5, spectrum=[3.0, 2.0, 1.0])
    assert made.floats_per_trial() == 600_000
    truth = made.truth(0, [0])
    np.testing.assert_allclose(np.linalg.norm(truth.W[0], axis=0), [3.0, 2.0, 1.0], rtol=1e-13)
    assert ref.subspace_distance(truth.reference(2)[0, :50], truth.B[0, :50, :2]) < 1e-10


# --- laws ----------------------------------------------------------------------------------------------------


def uniform_law(d):
    """Return the law of a squared coordinate of a uniform unit vector in R^d."""
    return stats.beta(0.5, (d - 1) / 2).cdf


LAWS = {
    "spectrum": {"spectrum": SPECTRUM},
    "spectrum with a gap": {"spectrum": SPECTRUM, "gap": 1.0, "gap_after": 2},
    "Gaussian with a gap": {"gap": 0.1, "gap_after": 1},
    "rank with a gap": {"rank": 3, "gap": 0.1, "gap_after": 1},
}


@pytest.mark.long
@pytest.mark.parametrize("form", LAWS)
def test_both_singular_frames_are_uniform(form):
    """Coordinates of the first and last singular vectors, and the trace of U_2's leading block, each by a KS test."""
    n, d, count, tests = 6, 5, 1500, 12
    rng = np.random.default_rng(1)
    rows = problem(n, d, **LAWS[form]).truth(5, range(count)).dense()
    V, _, Ut = np.linalg.svd(rows, full_matrices=False)
    r = 4 if "spectrum" in LAWS[form] else LAWS[form].get("rank", 5)
    for frame, size in ((np.swapaxes(Ut, -1, -2), d), (V, n)):
        last = 0 if "spectrum" in form else r - 1  # two equal singular values have no vectors of their own
        for column in (0, last):
            assert stats.kstest(frame[:, -1, column] ** 2, uniform_law(size)).pvalue > FAMILY / tests
        other = np.linalg.qr(rng.standard_normal((count, size, 3)))[0]
        blocks = [np.square(each[:, :2, :3]).sum(axis=(1, 2)) for each in (frame, other)]
        assert stats.ks_2samp(*blocks, method="asymp").pvalue > FAMILY / tests
        assert stats.kstest(frame[:, -1, 0] ** 2, uniform_law(size + 4)).pvalue < FAMILY / tests
    # U says nothing of V.
    assert abs(stats.spearmanr(Ut[:, 0, 0] ** 2, V[:, 0, 0] ** 2).statistic) < 4 / math.sqrt(count)


@pytest.mark.parametrize("rank", [None, 3])
def test_the_gaussian_truths_have_gaussian_regressors(rank):
    truth = problem(6, 5, rank=rank).truth(2, range(1000))
    values = truth.S if rank is None else truth.W
    assert stats.kstest(values.ravel(), "norm").pvalue > FAMILY / 2
    assert stats.kstest(values.ravel() * 1.1, "norm").pvalue < FAMILY / 2
    if rank is not None:
        assert stats.kstest(truth.B[:, -1, 0] ** 2, uniform_law(5)).pvalue > FAMILY / 2


# name: options, and the covariance of a new client in terms of U, the singular values and n
NEW = {
    "Gaussian": ({}, lambda U, values, n: np.eye(9)),
    "rank": ({"rank": 3}, lambda U, values, n: U[:, :3] @ U[:, :3].T),
    "spectrum": ({"spectrum": SPECTRUM}, lambda U, values, n: (U[:, :4] * values[:4] ** 2) @ U[:, :4].T / n),
    "Gaussian with a gap": (
        {"gap": 0.4, "gap_after": 2},
        lambda U, values, n: (U * values**2) @ U.T / n,
    ),
    "rank with a gap": (
        {"rank": 3, "gap": 0.4, "gap_after": 1},
        lambda U, values, n: (U[:, :3] * values[:3] ** 2) @ U[:, :3].T / n,
    ),
}


@pytest.mark.parametrize("form", NEW)
def test_new_clients_are_gaussian_with_the_covariance_of_the_old(form):
    options, law = NEW[form]
    n, count = 7, 20_000
    made = problem(n, 9, **options, noise_std=0.3)
    truth = made.truth(1, range(2))
    new = made.new_clients(truth, count, 6, range(2))
    assert new.noise_std == 0.3
    for old, rows in zip(truth.dense(), new.dense(), strict=True):
        U, values, _ = svd(old)
        wanted = law(U, values, n)
        scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2)
        errors = (rows.T @ rows / count - wanted) / (np.maximum(scale, 1e-12) / math.sqrt(count))
        assert np.abs(errors).max() < stats.norm.isf(FAMILY / 2 / errors.size)
        turned = rows @ U[:, 0] / math.sqrt(U[:, 0] @ wanted @ U[:, 0])
        assert stats.kstest(turned, "norm").pvalue > FAMILY
        assert not np.isin(rows, old).any()
        if "gap" in options or "spectrum" in options:  # it tells this law from one of unit covariance
            assert np.abs(rows.T @ rows / count - U @ U.T).max() > 0.05


@pytest.mark.parametrize("form", NEW)
def test_new_clients_depend_on_seed_and_trial_alone(form):
    made = problem(**NEW[form][0])
    truth = made.truth(1, range(4))
    new = made.new_clients(truth, 12, 6, range(4))
    alone = made.new_clients(made.truth(1, [3]), 12, 6, [3])
    assert alone.dense()[0].tobytes() == new.dense()[3].tobytes()
    assert not np.isclose(made.new_clients(truth, 12, 7, range(4)).dense(), new.dense()).any()
    np.testing.assert_allclose(made.new_clients(truth, 5, 6, range(4)).dense(), new.dense()[:, :5], rtol=1e-13)


def test_new_clients_are_others_at_the_seed_of_the_truth():
    made = problem()
    truth = made.truth(1, range(3))
    assert not np.isclose(made.new_clients(truth, made.n_clients, 1, range(3)).S, truth.S).any()


# --- reference and truncation --------------------------------------------------------------------------------


CUTS = {
    "spectrum": problem(spectrum=(5, 4, 3, 2, 1)),
    "ill-conditioned": problem(spectrum=np.geomspace(1.0, 1e-7, 6)),
    "ill-conditioned, n > d": problem(30, 6, spectrum=np.geomspace(1.0, 1e-7, 6)),
    "a gap": problem(spectrum=(5, 4, 3, 2, 1), gap=1e-3, gap_after=2),
}


@pytest.mark.parametrize(("name", "k"), [*((name, 2) for name in CUTS), ("spectrum", 5), ("ill-conditioned", 1)])
def test_the_reference_of_a_spectrum_is_its_leading_u(name, k):
    truth = CUTS[name].truth(0, TRIALS)
    values = np.linalg.norm(truth.W, axis=1)
    for U, reference, spectrum in zip(truth.B, truth.reference(k), values, strict=True):
        assert reference.shape == (truth.B.shape[1], k)
        np.testing.assert_allclose(reference.T @ reference, np.eye(k), atol=1e-13)
        gap = spectrum[k - 1] - spectrum[k] if k < len(spectrum) else spectrum[-1]
        allowed = 1e-12 if name != "a gap" or k != 2 else 1e-14 * spectrum[0] / gap
        assert ref.subspace_distance(U[:, :k], reference) < allowed


TURN = np.linalg.qr(normal(6, 6, seed=11))[0]


COVARIANCES = {
    "diagonal": np.geomspace(0.2, 5.0, 6),
    "full": (TURN * np.geomspace(0.2, 5.0, 6)) @ TURN.T,
    "singular": (TURN * [3.0, 0.0, 2.0, 1.0, 0.5, 0.0]) @ TURN.T,
}


SKEWED = {
    "dense": lambda design: lf.UnderParameterized(n_clients=20, dim=6, design=design),
    "factors": lambda design: lf.UnderParameterized(n_clients=20, dim=6, spectrum=(5, 4, 3, 1), design=design),
    "n < d": lambda design: lf.UnderParameterized(n_clients=4, dim=6, design=design),
}


def matrix_of(covariance):
    return np.diag(covariance) if covariance.ndim == 1 else covariance


def heads_on(B, Phi, Sigma):
    """Return each client's head of least risk on B, from its normal equations."""
    return np.linalg.solve(B.T @ Sigma @ B, B.T @ Sigma @ Phi.T).T


def risk_on(B, Phi, Sigma):
    left = Phi - heads_on(B, Phi, Sigma) @ B.T
    return 0.5 * np.einsum("nd,de,ne->n", left, Sigma, left).mean()


@pytest.mark.parametrize("form", SKEWED)
@pytest.mark.parametrize("name", COVARIANCES)
def test_the_reference_under_a_covariance_has_the_least_risk(name, form):
    """Its excess is what the spectrum of L'Phi leaves; B's mean step vanishes there; ``U_k`` and others are worse."""
    made = SKEWED[form](lf.Gaussian(covariance=COVARIANCES[name]))
    truth, Sigma = made.truth(0, TRIALS), matrix_of(COVARIANCES[name])
    for trial, Phi in enumerate(truth.dense()):
        B = truth.reference(2)[trial]
        np.testing.assert_allclose(B.T @ B, np.eye(2), atol=1e-13)
        values = np.linalg.eigvalsh(scipy.linalg.sqrtm(Sigma).real @ (Phi.T @ Phi) @ scipy.linalg.sqrtm(Sigma).real)
        least = 0.5 * values[:-2].sum() / len(Phi)
        assert risk_on(B, Phi, Sigma) == pytest.approx(least, rel=1e-6 if name == "singular" else 1e-10)
        W = heads_on(B, Phi, Sigma)
        gradient = Sigma @ (B @ W.T - Phi.T) @ W / len(Phi)
        assert np.abs(gradient).max() < 1e-12 * np.abs(W.T @ W).max()
        top = scipy.linalg.svd(Phi.T)[0][:, :2]
        assert risk_on(top, Phi, Sigma) > least * 1.001
        rng = np.random.default_rng(trial)
        near = [np.linalg.qr(B + size * rng.standard_normal(B.shape))[0] for size in (1e-3, 0.1, 10) for _ in range(9)]
        assert all(risk_on(other, Phi, Sigma) >= least * (1 - 1e-6) for other in near)
        if name == "singular":
            np.testing.assert_allclose(scipy.linalg.null_space(Sigma).T @ B, 0.0, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize(("form", "name"), [("dense", "diagonal"), *((form, "full") for form in SKEWED)])
def test_fedrep_on_the_population_converges_to_the_reference_and_never_beats_its_oracle(name, form):
    made = SKEWED[form](lf.Gaussian(covariance=COVARIANCES[name]))
    options = {"data": lf.GivenSamples.population(made, trials=4), "trials": 4}
    fedrep = lf.FedRep(rank=2, step_size=0.06, init="random")
    if form == "factors":
        fedrep = dataclasses.replace(fedrep, step_size=0.2)
    run = lf.simulate(fedrep, made, n_rounds=2000, record_every=20, **options)
    assert run.metrics["subspace_distance"][:, 0].min() > 0.1
    assert run.metrics["subspace_distance"][:, -1].max() < 1e-6
    oracle = lf.simulate(lf.Oracle(rank=2), made, n_rounds=1, **options).metrics["risk"][:, -1:]
    # The heads are of the round's first B: the least risk is met from above, up to rounding.
    assert (run.metrics["risk"][:, 1:] >= oracle * (1 - 1e-12)).all()
    np.testing.assert_allclose(run.metrics["risk"][:, -1:], oracle, rtol=1e-9)


@pytest.mark.parametrize("covariance", [2.5, np.full(6, 2.5), 2.5 * np.eye(6)], ids=["number", "vector", "matrix"])
@pytest.mark.parametrize("form", SKEWED)
def test_a_multiple_of_the_identity_changes_no_reference(form, covariance):
    plain = SKEWED[form]("gaussian").truth(0, TRIALS)
    scaled = SKEWED[form](lf.Gaussian(covariance=covariance)).truth(0, TRIALS)
    assert np.array_equal(plain.reference(2), scaled.reference(2))


@pytest.mark.parametrize("name", COVARIANCES)
def test_a_truth_of_the_learned_rank_keeps_its_span_under_a_covariance(name):
    design = lf.Gaussian(covariance=COVARIANCES[name])
    truth = lf.SharedRepresentation(n_clients=9, dim=6, rank=2, design=design).truth(0, TRIALS)
    assert np.array_equal(truth.reference(2), dataclasses.replace(truth, design=lf.Gaussian()).reference(2))
    assert lf.subspace_distance(truth.reference(2), truth.B).max() < 1e-14
    whole = lf.UnderParameterized(n_clients=9, dim=6, design=design).truth(0, TRIALS)
    assert np.array_equal(whole.truncated(2).B, dataclasses.replace(whole, design=lf.Gaussian()).truncated(2).B)


DENSE = {
    "Gaussian": problem(),
    "Gaussian, n > d": problem(12, 6),
    "rank": problem(rank=4),
    "spectrum": problem(spectrum=(5, 4, 3, 2, 1)),
    "gap": problem(gap=0.3, gap_after=2),
    "given Phi": lf.GivenTruth(Phi=normal(7, 9)),
    "given Phi and B": lf.GivenTruth(Phi=normal(7, 9), B=normal(9, 2, seed=3)),
    "given B, W": lf.GivenTruth(B=normal(9, 4), W=normal(7, 4, seed=1)),
    "given B, W, S": lf.GivenTruth(B=normal(9, 2), W=normal(7, 2, seed=1), S=normal(7, 9, seed=2)),
    "given S": lf.GivenTruth(S=normal(7, 9, seed=4)),
    "shared": lf.SharedRepresentation(n_clients=7, dim=9, rank=4),
}


@pytest.mark.parametrize(
    ("name", "k"), [*((name, 2) for name in DENSE), *((name, k) for name in ("spectrum", "given Phi") for k in (1, 6))]
)
def test_the_truncation_is_that_of_the_singular_value_decomposition(name, k):
    truth = dataclasses.replace(DENSE[name], noise_std=0.2).truth(1, TRIALS)
    cut = truth.truncated(k)
    assert (cut.noise_std, cut.design) == (truth.noise_std, truth.design)
    for Phi, best, U, W in zip(truth.dense(), cut.dense(), cut.B, cut.W, strict=True):
        left, values, right = svd(Phi)
        np.testing.assert_allclose(best, (right[:, :k] * values[:k]) @ left[:, :k].T, atol=1e-12)
        np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-13)
        np.testing.assert_allclose(W, Phi @ U, atol=1e-12)


@pytest.mark.parametrize("name", ["Gaussian", "rank", "spectrum", "gap", "given Phi", "given S", "given B, W"])
def test_the_oracle_has_the_leading_subspace(name):
    made = DENSE[name]
    result = lf.simulate(lf.Oracle(rank=2), made, data=lf.FixedSamples(2000), n_rounds=1, trials=2, seed=1)
    for B, W, Phi in zip(result.final.B, result.final.W, made.truth(1, range(2)).dense(), strict=True):
        U = svd(Phi)[0][:, :2]
        assert ref.subspace_distance(U, B) < 1e-12
        np.testing.assert_allclose(W, Phi @ B, atol=0.6)
    assert result.metrics["subspace_distance"].max() < 1e-12


# --- wrong arguments -----------------------------------------------------------------------------------------


WRONG = {
    "rank above the clients": ({"rank": 8}, ["rank = 8", "at most min(n_clients, dim) = 7"]),
    "no spectrum": ({"spectrum": []}, ["spectrum", "(0,)", "(r,)"]),
    "a matrix for a spectrum": ({"spectrum": np.ones((2, 2))}, ["spectrum", "(2, 2)", "(r,)"]),
    "a word for a spectrum": ({"spectrum": "geometric"}, ["spectrum", "array of numbers", "(r,)"]),
    "NaN in the spectrum": ({"spectrum": [2.0, NAN]}, ["spectrum", "1 value ", "(1,)"]),
    "complex spectrum": ({"spectrum": [1j]}, ["spectrum is complex", "real"]),
    "ascending spectrum": ({"spectrum": np.arange(1.0, 7.0)}, ["spectrum", "positive numbers in descending order"]),
    "long spectrum": ({"spectrum": np.ones(8)}, ["spectrum has 8 values", "min(n_clients, dim) = 7"]),
    "spectrum of another rank": ({"spectrum": [2.0, 1.0], "rank": 3}, ["rank = 3", "spectrum has 2 values"]),
    "gap alone": ({"gap": 0.5}, ["gap = 0.5", "gap_after = None", "given together"]),
    "no gap": ({"gap": 0, "gap_after": 2}, ["gap = 0", "positive finite number"]),
    "gap after none": ({"gap": 0.5, "gap_after": 0}, ["gap_after = 0", "integer of at least 1"]),
    "gap after the last": ({"gap": 0.5, "gap_after": 7}, ["gap_after = 7", "below the rank 7"]),
    "gap after the spectrum": ({"gap": 0.5, "gap_after": 2, "spectrum": [2, 1]}, ["gap_after = 2", "below the rank 2"]),
    "gap above the spectrum": (
        {"gap": 4.5, "gap_after": 1, "spectrum": [2, 1]},
        ["gap = 4.5", "at most 2 lambda_k = 4"],
    ),
    "noise_std": ({"noise_std": -1.0}, ["noise_std = -1.0", "at least 0"]),
    "design of another dimension": ({"design": lf.Gaussian(covariance=np.ones(3))}, ["covariance", "3", "9"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_named(name):
    changes, fragments = WRONG[name]
    assert_one_line(lambda: lf.UnderParameterized(**{"n_clients": 7, "dim": 9} | changes), fragments)


def test_a_gap_that_a_drawn_truth_does_not_allow():
    made = problem(gap=1000.0, gap_after=2)
    with pytest.raises(ValueError, match=r"gap = 1000 must be at most 2 lambda_k = \d.*k = 2") as caught:
        lf.simulate(lf.FLUTE(rank=2, step_size=0.1), made, data=lf.FreshSamples(5), n_rounds=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("made", [problem(rank=3), problem(spectrum=[3, 2, 1]), problem(3, 9)])
def test_the_oracle_needs_a_truth_of_its_rank(made):
    with pytest.raises(ValueError, match="Oracle requires rank = 4 to be at most the rank of the ground truth, 3"):
        lf.simulate(lf.Oracle(rank=4), made, data=lf.FreshSamples(5), n_rounds=1)
