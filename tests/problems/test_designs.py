"""Laws of x: mean 0, the stated covariance, the stated support, and numbers that do not depend on how they are cut."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
from scipy import stats

import linfed as lf

LAWS = {"gaussian": lf.Gaussian, "rademacher": lf.Rademacher, "cube": lf.UniformCube, "sphere": lf.UniformSphere}
DIM, SAMPLES = 3, 200_000
A = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.5]])
HALF = np.outer([1.0, 2.0, -1.0], [1.0, 2.0, -1.0])  # rank 1 of 3: semi-definite
COVARIANCES = {"identity": None, "scalar": 0.25, "vector": [4.0, 1.0, 0.01], "matrix": A, "semi-definite": HALF}

# All z-tests of this file together reject a correct program with this probability (before the seed was fixed).
FAMILY_ERROR_RATE = 1e-3
TESTS = len(LAWS) * (len(COVARIANCES) * (DIM + DIM * (DIM + 1) // 2) + DIM)
THRESHOLD = stats.norm.isf(FAMILY_ERROR_RATE / 2 / TESTS)


def draw(design, *shape, seed=0):
    out = np.empty(shape)
    design.fill(np.random.default_rng(seed), out)
    return out


def dense(covariance):
    value = np.ones(DIM) if covariance is None else np.asarray(covariance)
    return value if value.ndim == 2 else np.diag(np.broadcast_to(value, DIM))


def z_scores(values, expected):
    """Return the standardised distance of each column's mean from what it should be; exact columns must be exact."""
    gap, error = values.mean(axis=0) - expected, values.std(axis=0) / math.sqrt(len(values))
    exact = error <= 1e-12
    assert (np.abs(gap[exact]) <= 1e-12).all()
    return gap[~exact] / error[~exact]


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_mean_and_covariance(law, covariance):
    x = draw(LAWS[law](covariance=COVARIANCES[covariance]), SAMPLES, DIM, seed=1)
    rows, columns = np.triu_indices(DIM)
    assert np.abs(z_scores(x, np.zeros(DIM))).max() < THRESHOLD
    products = x[:, rows] * x[:, columns]
    scores = z_scores(products, dense(COVARIANCES[covariance])[rows, columns])
    assert np.abs(scores).max(initial=0.0) < THRESHOLD


@pytest.mark.parametrize(("law", "fourth"), [("gaussian", 3.0), ("rademacher", 1.0), ("cube", 1.8), ("sphere", 1.8)])
def test_fourth_moment_tells_the_laws_apart(law, fourth):
    x = draw(LAWS[law](), SAMPLES, DIM, seed=2)
    assert np.abs(z_scores(x**4, np.full(DIM, fourth))).max(initial=0.0) < THRESHOLD


def test_supports():
    assert set(np.unique(draw(lf.Rademacher(), 1000, DIM))) == {-1.0, 1.0}
    cube = draw(lf.UniformCube(), 20_000, DIM)
    assert np.abs(cube).max() <= math.sqrt(3.0)
    assert np.abs(cube).max() > 1.7
    for dim in (1, 2, 17):
        sphere = draw(lf.UniformSphere(), 500, dim)
        np.testing.assert_allclose(np.vecdot(sphere, sphere), dim, rtol=1e-14)


def test_cube_and_gaussian_have_their_distribution_functions():
    """Two Kolmogorov-Smirnov tests at half of the error rate each, against the laws of one coordinate."""
    for design, law in ((lf.Gaussian(), stats.norm()), (lf.UniformCube(), stats.uniform(-(3**0.5), 2 * 3**0.5))):
        assert stats.kstest(draw(design, 5000, 1, seed=3)[:, 0], law.cdf).pvalue > FAMILY_ERROR_RATE / 2


@pytest.mark.parametrize("law", LAWS)
def test_semi_definite_covariance_leaves_its_null_directions_empty(law):
    x = draw(LAWS[law](covariance=HALF), 200, DIM)
    for null in ([2.0, -1.0, 0.0], [1.0, 0.0, 1.0]):
        np.testing.assert_allclose(x @ null, 0.0, atol=1e-14)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_numbers_do_not_depend_on_the_cut(law, covariance):
    design = LAWS[law](covariance=COVARIANCES[covariance])
    whole = draw(design, 12, 5, DIM)
    rng, pieces = np.random.default_rng(0), np.empty_like(whole)
    for piece in (pieces[:1], pieces[1:6], pieces[6:12].reshape(2, 3, 5, DIM)):
        design.fill(rng, piece)
    assert whole.tobytes() == pieces.tobytes()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_root_gives_the_quadratic_form(covariance):
    """The risk and the samples use one root L: ``L L' = Cov`` whichever side it is applied from."""
    design = lf.Gaussian(covariance=COVARIANCES[covariance])
    L = design.shape_rows(np.eye(DIM)).T
    np.testing.assert_allclose(L @ L.T, dense(COVARIANCES[covariance]), atol=1e-14)
    M = np.random.default_rng(4).standard_normal((2, DIM, 4))
    np.testing.assert_allclose(design.root_apply(M), L.T @ M, atol=1e-14)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_root_is_undone_on_its_range(covariance):
    design = lf.Gaussian(covariance=COVARIANCES[covariance])
    L = design.shape_rows(np.eye(DIM)).T
    M = np.random.default_rng(5).standard_normal((2, DIM, 4))
    np.testing.assert_allclose(design.root_solve(M), np.linalg.pinv(L.T, rcond=1e-7) @ M, atol=1e-12)


def test_the_variance_of_every_direction():
    for covariance in (2.0, [2.0, 2.0], 2.0 * np.eye(2)):
        assert lf.Rademacher(covariance=covariance).variance == 2.0
    assert lf.Gaussian().variance == 1.0
    for covariance in ([1.0, 2.0], [[1.0, 0.1], [0.1, 1.0]], np.diag([1.0, 0.0])):
        assert lf.Gaussian(covariance=covariance).variance is None


def test_equality_hash_and_repr():
    for law in LAWS.values():
        assert law() == law()
        assert hash(law()) == hash(law())
        assert repr(law()) == f"{law.__name__}(covariance=None)"
        assert law(covariance=A) == law(covariance=A.tolist())
        assert hash(law(covariance=A)) == hash(law(covariance=A.tolist()))
        assert law(covariance=A) != law(covariance=HALF)
        assert law(covariance=1.0) != law()
        assert "covariance=" in repr(law(covariance=A))
    for name, law in LAWS.items():
        assert lf.SharedRepresentation(n_clients=2, dim=3, rank=1, design=name).design == law()
    assert len({law() for law in LAWS.values()}) == len(LAWS)
    plain, signed = lf.Gaussian(covariance=np.eye(2)), lf.Gaussian(covariance=[[1.0, -0.0], [-0.0, 1.0]])
    assert (plain, hash(plain)) == (signed, hash(signed))
    assert lf.Gaussian() != lf.Rademacher()
    assert lf.Gaussian() != "gaussian"


# --- a law of one's own --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled(lf.Design):
    """Signs in groups of coordinates, with two fields more than a design has."""

    groups: object = 1
    weights: object = None

    def __post_init__(self):
        super().__post_init__()
        if self.weights is not None:
            object.__setattr__(self, "weights", np.asarray(self.weights))

    def draw(self, rng, out):
        rng.random(out=out)
        np.copyto(out, np.where(out < 0.5, -1.0, 1.0))


class SignsInDraw(lf.Gaussian):
    """Takes itself for Gaussian, and is not: each of these makes its rows in another way."""

    def draw(self, rng, out):
        lf.Rademacher().draw(rng, out)


class SignsInFill(lf.Gaussian):
    def fill(self, rng, out):
        lf.Rademacher().fill(rng, out)


class Mixin:
    def draw(self, rng, out):
        lf.Rademacher().draw(rng, out)


class SignsFromAside(Mixin, lf.Gaussian):
    pass


SIGNS = [SignsInDraw, SignsInFill, SignsFromAside]


class StillGaussian(lf.Gaussian):
    """Draws in another order, and says that it is Gaussian all the same."""

    standard_gaussian = True

    def draw(self, rng, out):
        out[...] = rng.standard_normal(out.shape[::-1]).T


class Renamed(lf.Gaussian):
    """Nothing but a name."""


def risks(design, engine="auto", data=None):
    """Return the engine and the risks of a run whose Gaussian samples would be served in law."""
    problem = lf.SharedRepresentation(n_clients=40, dim=8, rank=2, noise_std=0.5, design=design)
    algorithm = lf.FedRep(rank=2, step_size=0.1, init="random")
    result = lf.simulate(algorithm, problem, data=data or lf.FreshSamples(12), n_rounds=30, trials=20, engine=engine)
    return result.engine, result.metrics["risk"]


@pytest.mark.long
@pytest.mark.parametrize("law", SIGNS)
def test_a_subclass_with_its_own_law_is_not_served_as_gaussian(law):
    assert risks(lf.Gaussian())[0] == "projected"
    engine, found = risks(law())
    assert engine == "explicit"
    assert found.tobytes() == risks(lf.Rademacher())[1].tobytes()
    for wanted in ("projected", "chain", "compressed"):
        with pytest.raises(lf.EngineError, match="Gaussian x"):
            risks(law(), wanted)
    # Fixed samples in law are Gaussian as well, by the choice of an engine and by the source.
    with pytest.raises(lf.EngineError, match="requires Gaussian x"):
        risks(law(), data=lf.FixedSamples(12, in_law=True))


@pytest.mark.parametrize("law", SIGNS)
def test_many_fixed_samples_of_an_own_law_are_drawn(law, monkeypatch):
    monkeypatch.setattr("linfed.data.samples.MANY_VALUES", 1.0)
    data = lf.FixedSamples(12)
    assert risks(law(), "compressed", data)[1].tobytes() == risks(lf.Rademacher(), "compressed", data)[1].tobytes()


def test_an_own_law_has_other_results_than_gaussian():
    """By law: a head of one sample is off by noise / x_1, Cauchy for Gaussian x and Gaussian for signs."""
    errors = {}
    for law in (lf.Gaussian, SignsInDraw, SignsInFill):
        problem = lf.GivenTruth(B=np.eye(40)[:, :1], W=np.ones((4000, 1)), noise_std=1.0, design=law())
        result = lf.simulate(lf.Oracle(rank=1), problem, data=lf.FreshSamples(1), n_rounds=1)
        assert result.engine == ("projected" if law is lf.Gaussian else "explicit")
        errors[law] = result.final.W.ravel() - 1.0
    assert stats.kstest(errors[lf.Gaussian], stats.cauchy().cdf).pvalue > FAMILY_ERROR_RATE
    for law in (SignsInDraw, SignsInFill):
        assert stats.kstest(errors[law], stats.norm().cdf).pvalue > FAMILY_ERROR_RATE
        assert stats.ks_2samp(errors[law], errors[lf.Gaussian]).pvalue < 1e-9


@pytest.mark.parametrize("law", [StillGaussian, Renamed])
def test_a_subclass_that_is_gaussian_is_served_in_law(law):
    assert risks(law())[0] == "projected"
    assert risks(law())[1].tobytes() == risks(lf.Gaussian())[1].tobytes()


def test_designs_are_compared_by_all_their_fields():
    assert Scaled(groups=2) == Scaled(groups=2)
    assert Scaled(groups=2) != Scaled(groups=3)
    assert Scaled(weights=[1.0, 2.0]) == Scaled(weights=np.array([1.0, 2.0]))
    assert Scaled(weights=[1.0, 2.0]) != Scaled(weights=[1.0, 3.0])
    assert Scaled(weights=[1.0, 2.0], covariance=A) != Scaled(weights=[1.0, 2.0])
    assert hash(Scaled(weights=[1.0, 2.0], covariance=A)) == hash(Scaled(weights=[1.0, 2.0], covariance=A.tolist()))
    assert len({Scaled(groups=1), Scaled(groups=2), Scaled(groups=1)}) == 2
    assert pickle.loads(pickle.dumps(Scaled(groups=2, covariance=A))) == Scaled(groups=2, covariance=A)


def test_an_own_law_has_its_covariance():
    x, plain = draw(Scaled(covariance=A), 50, DIM), draw(Scaled(), 50, DIM)
    np.testing.assert_allclose(x, Scaled(covariance=A).shape_rows(plain))
    with pytest.raises(TypeError, match="abstract"):
        lf.Design()
    with pytest.raises(ValueError, match=r"is a class: write Scaled\(\)"):
        lf.SharedRepresentation(n_clients=2, dim=3, rank=1, design=Scaled)


def test_covariance_is_kept_apart_from_the_caller():
    given = A.copy()
    design = lf.Gaussian(covariance=given)
    given[:] = 0.0
    assert np.array_equal(design.covariance, A)
    with pytest.raises(ValueError, match="read-only"):
        design.covariance[0, 0] = 1.0
    with pytest.raises(AttributeError):
        design.covariance = None


def test_symmetry_is_relative_to_the_largest_entry():
    skew = np.array([[1.0, 0.5], [0.0, 1.0]])
    for size in (1e-12, 1.0, 1e12):
        with pytest.raises(ValueError, match="must be a symmetric"):
            lf.Gaussian(covariance=size * skew)
        lf.Gaussian(covariance=size * np.array([[1.0, 1e-9], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="one per client"):
        lf.Gaussian(covariance=np.stack([np.eye(2), 1e-12 * skew]))
