"""Every question of a batch, answered by explicit rows, against a loop over trials and clients."""

import inspect
import itertools

import numpy as np
import pytest

from linfed.data import rows as data_rows
from linfed.data.batch import Batch, Features, Fit
from linfed.data.chain import ChainSource
from linfed.data.class_sources import FixedClassSource, FreshClassSource
from linfed.data.classes import ClassBatch, ClassFeatures
from linfed.data.compressed import CompressedBatch, CompressedFixedSource, CompressedFreshSource, GramBatch
from linfed.data.explicit import ExplicitBatch, ExplicitFeatures, ExplicitFit
from linfed.data.labels import LabelLaw
from linfed.data.projected.classes import ProjectedClassFeatures, ProjectedClassSource
from linfed.data.projected.features import ProjectedFeatures, ProjectedFit
from linfed.data.projected.source import ProjectedBatch, ProjectedSource
from linfed.data.rows import DrawnRows, HeldRows, Rows, Workspace
from linfed.data.sources import FixedSource, FreshSource, Source
from linfed.numerics import linalg
from linfed.numerics.streams import Stream, TrialRandom, generators
from linfed.numerics.threads import VARIABLE
from tests import references as ref
from tests.helpers import each

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
TRIALS = 3

# name: samples of each client (one row for all trials, or one per trial), d, k
SHAPES = {
    "m > d": ([[12, 12, 12, 12]], 5, 3),
    "m == d": ([[5, 5, 5, 5]], 5, 3),
    "m < d": ([[4, 4, 4, 4]], 6, 3),
    "m == k": ([[3, 3, 3, 3, 3]], 6, 3),
    "m < k": ([[2, 2, 2, 2]], 6, 3),
    "k == 1": ([[4, 4, 4]], 5, 1),
    "k == d": ([[7, 7]], 3, 3),
    "one client": ([[6]], 5, 2),
    "one sample of one client": ([[1]], 4, 2),
    "all sizes equal": ([[3, 3, 3]], 3, 3),
    "unequal": ([[1, 2, 3, 9], [9, 3, 5, 6], [4, 9, 2, 3]], 5, 3),
    "several blocks of clients": ([[40] * 85], 80, 3),
}
# name: values of X in a block, given (p, m, d)
CUTS = {
    "default": lambda p, m, d: linalg.CACHE_VALUES,
    "two trials": lambda p, m, d: 2 * p * m * d,
    "two clients": lambda p, m, d: 2 * m * d,
    "one client": lambda p, m, d: 1,
}
LARGE = "several blocks of clients"
CUT_SHAPES = [(shape, cut) for shape in SHAPES for cut in CUTS if shape != LARGE or cut == "default"]
"""The large shape is there to be cut by default: the others are cut as it is, and are the quicker ones."""


def draw(counts, d, seed=0):
    """Return X (T, p, m, d) and y (T, p, m), zero beyond each client's count, and the counts (T, p)."""
    rng = np.random.default_rng(seed)
    counts = np.broadcast_to(np.array(counts, dtype=float), (TRIALS, len(counts[0]))).copy()
    m = int(counts.max())
    inside = np.arange(m) < counts[..., None]
    X = rng.standard_normal((*counts.shape, m, d)) * inside[..., None]
    return X, rng.standard_normal((*counts.shape, m)) * inside, counts


def rows(X, y, counts):
    """Return nested lists [trial][client] of (X_i, y_i) without padding."""
    return [
        [(X_i[: int(m)], y_i[: int(m)]) for X_i, y_i, m in zip(*trial, strict=True)]
        for trial in zip(X, y, counts, strict=True)
    ]


def everyone(X):
    return np.broadcast_to(np.arange(X.shape[1]), X.shape[:2])


def explicit_batch(X, y, counts):
    return ExplicitBatch(X, y, active=everyone(X), counts=counts)


class Asked:
    """Where the questions are asked: B, per-client theta and heads, one theta for all, weights of clients."""

    def __init__(self, p, d, k, trials=TRIALS, seed=1):
        rng = np.random.default_rng(seed)
        self.B = rng.standard_normal((trials, d, k))
        self.theta, self.common = rng.standard_normal((trials, p, d)), rng.standard_normal((trials, 1, d))
        self.W, self.weights = rng.standard_normal((trials, p, k)), rng.random((trials, p))

    def trial(self, t):
        one = object.__new__(Asked)
        one.__dict__ = {name: value[t : t + 1] for name, value in vars(self).items()}
        return one


def answers(batch, asked):
    """Return the batch's answer to every question, by name."""
    features = batch.project(asked.B)
    fit, ridge_fit = features.fit(), features.fit(0.3)
    A, b = batch.normal_equations()
    # Twice, so that what the first call keeps is tried too.
    first_head_gradient, both = features.head_gradient(asked.W), features.gradients(asked.W)
    return {
        "heads": fit.W,
        "ridge heads": ridge_fit.W,
        "head gradient": first_head_gradient,
        "head gradient again": features.head_gradient(asked.W[:, ::-1]),
        "representation gradient": features.representation_gradient(asked.W),
        "representation gradient, sum": features.representation_gradient(asked.W, 1.0),
        "representation gradient, weighted": features.representation_gradient(asked.W, asked.weights),
        "representation gradient at the ridge heads": ridge_fit.representation_gradient(),
        "representation gradient at the heads": fit.representation_gradient(),
        "representation gradient at the heads, sum": fit.representation_gradient(1.0),
        "representation gradient at the heads, weighted": fit.representation_gradient(asked.weights),
        "representation gradient at the heads, as at any": features.representation_gradient(fit.W),
        "gradient beside the fit": fit.shifted().gradient(asked.theta),
        "gradient beside heads": features.shifted(asked.W).gradient(asked.theta),
        "head gradient, of both": both[0],
        "representation gradient, of both": both[1],
        "representation gradient, of both, sum": features.gradients(asked.W, 1.0)[1],
        "representation gradient, of both, weighted": features.gradients(asked.W, asked.weights)[1],
        "gradient": batch.gradient(asked.theta),
        "gradient at one theta": batch.gradient(asked.common),
        "loss": batch.loss(asked.theta),
        "loss at one theta": batch.loss(asked.common),
        "least squares": batch.least_squares(),
        "ridge": batch.least_squares(0.3),
        "A": A,
        "b": b,
    }


def loop_answers(data, asked):
    """Return the same from a loop; `data` as of `rows`."""
    p = len(data[0])

    def each(question):
        return np.array([[question(X, y, t, i) for i, (X, y) in enumerate(clients)] for t, clients in enumerate(data)])

    def representation(W, weights):
        per_client = each(lambda X, y, t, i: np.outer(ref.gradient(X, y, asked.B[t] @ W[t, i]), W[t, i]))
        return (np.broadcast_to(weights, (len(data), p))[..., None, None] * per_client).sum(axis=1)

    B, W, reverse = asked.B, asked.W, asked.W[:, ::-1]

    heads = each(lambda X, y, t, i: ref.least_squares(X @ B[t], y))
    ridge_heads = each(lambda X, y, t, i: ref.least_squares(X @ B[t], y, 0.3))
    return {
        "heads": heads,
        "ridge heads": ridge_heads,
        "head gradient": each(lambda X, y, t, i: ref.gradient(X @ B[t], y, W[t, i])),
        "head gradient again": each(lambda X, y, t, i: ref.gradient(X @ B[t], y, reverse[t, i])),
        "representation gradient": representation(W, 1 / p),
        "representation gradient, sum": representation(W, 1.0),
        "representation gradient, weighted": representation(W, asked.weights),
        "representation gradient at the ridge heads": representation(ridge_heads, 1 / p),
        "representation gradient at the heads": representation(heads, 1 / p),
        "representation gradient at the heads, sum": representation(heads, 1.0),
        "representation gradient at the heads, weighted": representation(heads, asked.weights),
        "representation gradient at the heads, as at any": representation(heads, 1 / p),
        "gradient beside heads": each(lambda X, y, t, i: ref.gradient(X, y - X @ B[t] @ W[t, i], asked.theta[t, i])),
        "head gradient, of both": each(lambda X, y, t, i: ref.gradient(X @ B[t], y, W[t, i])),
        "representation gradient, of both": representation(W, 1 / p),
        "representation gradient, of both, sum": representation(W, 1.0),
        "representation gradient, of both, weighted": representation(W, asked.weights),
        "gradient beside the fit": each(
            lambda X, y, t, i: ref.gradient(X, y - X @ B[t] @ heads[t, i], asked.theta[t, i])
        ),
        "gradient": each(lambda X, y, t, i: ref.gradient(X, y, asked.theta[t, i])),
        "gradient at one theta": each(lambda X, y, t, i: ref.gradient(X, y, asked.common[t, 0])),
        "loss": each(lambda X, y, t, i: ref.loss(X, y, asked.theta[t, i])),
        "loss at one theta": each(lambda X, y, t, i: ref.loss(X, y, asked.common[t, 0])),
        "least squares": each(lambda X, y, t, i: ref.least_squares(X, y)),
        "ridge": each(lambda X, y, t, i: ref.least_squares(X, y, 0.3)),
        "A": each(lambda X, y, t, i: X.T @ X / max(len(y), 1)),
        "b": each(lambda X, y, t, i: X.T @ y / max(len(y), 1)),
    }


def assert_answers(batch, data, asked):
    assert np.array_equal(batch.counts, [[len(y) for _, y in clients] for clients in data])
    got, wanted = answers(batch, asked), loop_answers(data, asked)
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, **TOLERANCE, err_msg=name)


def assert_same_bits(one, other):
    for name, value in one.items():
        assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize(("shape", "cut"), CUT_SHAPES)
def test_every_question_equals_a_loop(shape, cut, monkeypatch):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    monkeypatch.setattr(linalg, "CACHE_VALUES", CUTS[cut](*X.shape[1:]))
    assert_answers(explicit_batch(X, y, counts), rows(X, y, counts), Asked(X.shape[1], d, k))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("shape", ["m > d", "unequal", "several blocks of clients"])
def test_blocks_hold_every_row_once_and_keep_to_the_cache(shape, cut, monkeypatch):
    X, y, counts = draw(*SHAPES[shape][:2])
    _, p, m, d = X.shape
    limit = CUTS[cut](p, m, d)
    monkeypatch.setattr(linalg, "CACHE_VALUES", limit)
    monkeypatch.setattr(data_rows, "FEW_CLIENTS", 1)
    seen, number = np.zeros(X.shape[:2], dtype=int), 0
    for trials, clients, block in explicit_batch(X, y, counts).rows.blocks():
        assert np.array_equal(block, X[trials, clients])
        assert block.size <= max(2 * limit, m * d)
        seen[trials, clients] += 1
        number += 1
    assert (seen == 1).all()
    whole = p * m * d <= 2 * limit  # such a trial is not worth cutting
    expected = {"two trials": 2, "two clients": TRIALS * -(-p // 2), "one client": TRIALS * p}
    if cut == "two trials" or (cut in expected and not whole):
        assert number == expected[cut]
    elif shape == "several blocks of clients":
        assert number > TRIALS


@pytest.mark.parametrize(
    ("sizes", "clients"),
    [((200, 100, 1000), 10), ((1000, 50, 200), 64), ((1000, 20, 20), 327), ((3, 2000, 1000), 1), ((20, 10, 1000), 20)],
)
def test_a_block_has_64_clients_if_eight_megabytes_hold_them(sizes, clients):
    """Few clients beyond a megabyte share a block, as a call for each costs more than the cache; many keep to it."""
    X = np.broadcast_to(0.0, (1, *sizes))
    blocks = [c.stop - c.start for _, c, _ in data_rows.HeldRows(X).blocks()]
    assert (blocks[0], sum(blocks)) == (clients, sizes[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "cut"), [place for place in CUT_SHAPES if place[0] in ("m > d", "m < k", "unequal", LARGE)]
)
def test_a_trial_alone_has_the_same_bits(shape, cut, monkeypatch):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    monkeypatch.setattr(linalg, "CACHE_VALUES", CUTS[cut](*X.shape[1:]))
    asked = Asked(X.shape[1], d, k)
    together = answers(explicit_batch(X, y, counts), asked)
    for t in range(TRIALS):
        one = slice(t, t + 1)
        alone = answers(explicit_batch(X[one], y[one], counts[one]), asked.trial(t))
        assert_same_bits(alone, {name: value[one] for name, value in together.items()})


def test_asking_writes_into_nothing():
    X, y, counts = draw([[2, 3, 9, 5]], 4)
    asked = Asked(4, 4, 3)
    order = np.random.default_rng(2).permuted(np.broadcast_to(np.arange(9), (TRIALS, 4, 9)), axis=-1)
    for array in (X, y, counts, order, *vars(asked).values()):
        array.setflags(write=False)  # then any write raises
    batch = explicit_batch(X, y, counts)
    answers(batch, asked)
    for other in (batch.shifted(asked.theta), *batch.minibatches(2, order), *batch.split()):
        answers(other, asked)
    for wrong in (order[..., :8], np.zeros_like(order)):
        with pytest.raises(ValueError, match="must contain permutations of range"):
            next(batch.minibatches(2, wrong))


# --- labels --------------------------------------------------------------------------------------------------

PARTS = [parts for size in range(4) for parts in itertools.combinations(("BW", "S", "noise"), size)]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("first", ["y", "project", "gradient"])
@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_labels_from_a_law(parts, first, cut, monkeypatch):
    p, m, d, r = 4, 5, 6, 2
    X = draw([[m] * p], d)[0]
    monkeypatch.setattr(linalg, "CACHE_VALUES", CUTS[cut](p, m, d))
    rng = np.random.default_rng(3)
    B, W = rng.standard_normal((TRIALS, d, r)), rng.standard_normal((TRIALS, p, r))
    S, noise = rng.standard_normal((TRIALS, p, d)), rng.standard_normal((TRIALS, p, m))
    y = np.zeros((TRIALS, p, m))
    for t, i in np.ndindex(TRIALS, p):
        y[t, i] = (("BW" in parts) * (X[t, i] @ B[t] @ W[t, i]) + ("S" in parts) * (X[t, i] @ S[t, i])) + (
            "noise" in parts
        ) * noise[t, i]
    law = LabelLaw(
        B=B if "BW" in parts else None,
        W=W if "BW" in parts else None,
        S=S if "S" in parts else None,
        noise=noise if "noise" in parts else None,
    )
    batch = ExplicitBatch(X, law, active=everyone(X))
    asked = Asked(p, d, 3)
    if first == "y":
        assert batch.y.shape == y.shape
    elif first == "gradient":
        batch.gradient(asked.theta)
    assert_answers(batch, rows(X, y, batch.counts), asked)
    np.testing.assert_allclose(batch.y, y, **TOLERANCE)


def test_the_labels_of_a_client_alone_have_the_bits_of_many():
    X, rng = draw([[1] * 5], 8)[0], np.random.default_rng(3)
    parts = {"W": rng.standard_normal((TRIALS, 5, 20)), "S": rng.standard_normal((TRIALS, 5, 8))}
    law, stars = LabelLaw(B=None, noise=rng.standard_normal((TRIALS, 5, 1)), **parts), rng.standard_normal((20, 1, 5))
    together = law.labels(slice(1, 2), slice(0, 5), X[1:2], stars)
    for i in range(5):
        own = np.ascontiguousarray(stars[..., i : i + 1])
        alone = law.labels(slice(1, 2), slice(i, i + 1), X[1:2, i : i + 1], own)
        assert np.ascontiguousarray(together[:, i]).tobytes() == np.ascontiguousarray(alone[:, 0]).tobytes()


def test_features_of_a_round_outlive_later_ones():
    X, _, counts = draw([[5, 5, 5]], 6)
    first, second = Asked(3, 6, 3, seed=1), Asked(3, 6, 3, seed=2)
    law = LabelLaw(B=first.B, W=first.W, S=None, noise=None)
    batch = ExplicitBatch(X, law, active=everyone(X))
    early = batch.project(first.B)
    late = batch.project(second.B)
    heads = late.fit().W
    latest = batch.project(np.zeros_like(first.B))
    latest.fit().representation_gradient()
    assert np.array_equal(heads, late.fit().W)
    np.testing.assert_allclose(early.fit().W, first.W, **TOLERANCE)
    np.testing.assert_allclose(early.head_gradient(first.W), 0, atol=1e-10)
    kept = early.representation_gradient(second.W)
    early.representation_gradient(first.W)
    data = rows(X, batch.y, counts)
    wanted = loop_answers(data, _with_heads(first, second.W))["representation gradient"]
    np.testing.assert_allclose(kept, wanted, **TOLERANCE)


def _with_heads(asked, W):
    other = object.__new__(Asked)
    other.__dict__ = {**vars(asked), "W": W}
    return other


# --- rows drawn when they are read ---------------------------------------------------------------------------


class Drawn:
    """Rows that are drawn when they are read, a log of the drawing, and the stream's place in it."""

    def __init__(self, X, workspace=None):
        self.source, self.log, self.rewinds = X, [[] for _ in X], 0
        self.rows = DrawnRows(X.shape, self.draw, self.rewind, workspace or Workspace())

    def draw(self, trial, clients, out):
        self.log[trial] += range(clients.start, clients.stop)
        out[...] = self.source[trial, clients]

    def rewind(self):
        self.rewinds += 1


@pytest.mark.long
@pytest.mark.parametrize("labels", ["given", "law"])
@pytest.mark.parametrize(("shape", "cut"), [place for place in CUT_SHAPES if place[0] in ("m > d", "m < k", LARGE)])
def test_lazy_rows_give_the_bits_of_eager_ones(shape, cut, labels, monkeypatch):
    counts, d, k = SHAPES[shape]
    p, workspace = len(counts[0]), Workspace()
    asked = Asked(p, d, k)
    for seed in (0, 1):  # two rounds with one workspace
        X, y, _ = draw(counts, d, seed)
        monkeypatch.setattr(linalg, "CACHE_VALUES", CUTS[cut](*X.shape[1:]))
        if labels == "law":
            y = LabelLaw(B=asked.B, W=asked.W, S=asked.theta, noise=y)
        drawn = Drawn(X, workspace)
        batch = ExplicitBatch(drawn.rows, y, active=everyone(X), workspace=workspace)
        assert_same_bits(answers(ExplicitBatch(X, y, active=everyone(X)), asked), answers(batch, asked))
        batch.rows.finish()
        assert drawn.log == [list(range(p)) * (1 + drawn.rewinds)] * TRIALS  # in the stream's order
        assert drawn.rewinds <= 1


QUESTIONS = {
    "finish": lambda batch, theta: batch.rows.finish(),
    "X": lambda batch, theta: batch.X,
    "y": lambda batch, theta: batch.y,
    "features": lambda batch, theta: batch.project(theta.swapaxes(1, 2)).Z,
    "exact heads": lambda batch, theta: batch.project(theta.swapaxes(1, 2)).fit().W,
    "gradient": lambda batch, theta: batch.gradient(theta),
    "loss": lambda batch, theta: batch.loss(theta),
    "least_squares": lambda batch, theta: batch.least_squares(),
    "pooled_least_squares": lambda batch, theta: batch.pooled_least_squares(np.ones((TRIALS, 3))),
    "shifted": lambda batch, theta: batch.shifted(theta),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_any_first_question_draws_the_rows_once(question, monkeypatch):
    X, y, _ = draw([[4, 4, 4]], 3)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 4 * 3)
    law = LabelLaw(B=None, W=None, S=np.ones((TRIALS, 3, 3)), noise=y)
    drawn = Drawn(X)
    batch = ExplicitBatch(drawn.rows, law, active=everyone(X))
    QUESTIONS[question](batch, np.ones((TRIALS, 1, 3)))
    if question != "finish":
        assert drawn.log == [[0, 1, 2]] * TRIALS
    batch.rows.finish()
    assert drawn.log == [[0, 1, 2]] * TRIALS
    assert np.array_equal(batch.X, X)  # drawn again, where they were not kept
    assert drawn.rewinds == (question in ("finish", "exact heads"))


@pytest.mark.parametrize("shape", ["m > d", "m < k", "k == 1", "one client", "unequal"])
@pytest.mark.parametrize("shared", [False, True])
def test_fixed_samples_stored_by_column_give_the_same_heads(shape, shared):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    if shared:  # all trials have the rows of the first
        X, y, counts = (np.broadcast_to(array[:1], array.shape) for array in (X, y, counts))
    asked = Asked(X.shape[1], d, k)
    batch = FixedSource(X, y, counts).round(everyone(X), 1)
    assert_answers(batch, rows(X, y, counts), asked)
    columns = batch.rows.columns_for(k)
    assert columns.flags.c_contiguous != shared
    np.testing.assert_array_equal(columns, X.transpose(0, 3, 2, 1))
    fits = batch.project(asked.B).fit(), explicit_batch(X, y, counts).project(asked.B).fit()
    for name in ("W", "residual", "gradient"):
        np.testing.assert_allclose(*(getattr(fit, name) for fit in fits), **TOLERANCE)
    alone = FixedSource(X[1:2], y[1:2], counts[1:2]).round(everyone(X[:1]), 1).project(asked.B[1:2]).fit()
    for name in ("W", "residual", "gradient"):
        assert np.array_equal(getattr(alone, name)[0], getattr(fits[0], name)[1])


def test_rows_of_one_round_are_not_stored_by_column():
    X, y, counts = draw(*SHAPES["m > d"][:2])
    assert explicit_batch(X, y, counts).rows.columns_for(2) is None
    source = FixedSource(X, y, counts)
    assert source.round(everyone(X[:, :2]), 1).rows.columns_for(2) is None
    assert source.round(everyone(X), 2).rows.columns_for(4) is None
    assert HeldRows(np.zeros((1, 3, 100, 1000)), lasting=True).columns_for(2) is None


def test_heads_at_two_bases_of_one_round_stay_valid():
    X, y, _ = draw([[6] * 4], 5)
    batch = ExplicitBatch(X, y, active=everyone(X))
    rng = np.random.default_rng(0)
    bases = [rng.standard_normal((TRIALS, 5, 2)) for _ in range(2)]
    features = [batch.project(B) for B in bases]
    fits = [each.fit() for each in features]
    for B, fit in zip(bases, fits, strict=True):
        theta = fit.W @ np.swapaxes(B, -1, -2)
        np.testing.assert_allclose(fit.shifted().y, y - np.einsum("tpmd,tpd->tpm", X, theta), atol=1e-13)
        gradient = np.einsum("tpd,tpk->tdk", batch.gradient(theta), fit.W) / 4
        np.testing.assert_allclose(fit.representation_gradient(), gradient, atol=1e-13)


def test_exact_heads_and_their_gradient_keep_one_block_only(monkeypatch):
    X, y, _ = draw([[4] * 9], 3)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 4 * 3)
    workspace = Workspace()
    batch = ExplicitBatch(Drawn(X, workspace).rows, y, active=everyone(X), workspace=workspace)
    features = batch.project(np.ones((TRIALS, 3, 1)))
    features.fit().representation_gradient()
    assert workspace._arrays["block"].size < X.size
    assert "X" not in workspace._arrays
    assert batch.X.shape == X.shape
    assert "X" in workspace._arrays


def test_threads_read_blocks_of_rows_that_are_held(monkeypatch):
    X, y, counts = draw(*SHAPES["unequal"][:2])
    _, p, m, d = X.shape
    monkeypatch.setenv(VARIABLE, "2")
    monkeypatch.setattr(linalg, "CACHE_VALUES", m * d)
    monkeypatch.setattr(data_rows, "FEW_CLIENTS", 1)
    monkeypatch.setattr(data_rows, "LARGE", X.size)
    batch, drawn = explicit_batch(X, y, counts), Drawn(X)
    assert (batch.rows.threads, drawn.rows.threads) == (2, 1)
    assert_answers(batch, rows(X, y, counts), Asked(p, d, 3))
    drawn.rows.array()
    assert drawn.rows.threads == 2
    monkeypatch.setattr(data_rows, "LARGE", X.size + 1)
    assert (batch.rows.threads, drawn.rows.threads) == (1, 1)


def test_a_workspace_has_one_array_of_a_name_and_shape():
    workspace = Workspace()
    first = workspace.array("X", (2, 3))
    assert workspace.array("X", (2, 3)) is first
    assert workspace.array("y", (2, 3)) is not first
    assert workspace.array("X", (3, 2)).shape == (3, 2)


# --- the arguments of questions ------------------------------------------------------------------------------

DEFAULTS = {"ridge": 0.0, "weights": None, "parts": 2, "rest": False, "order": None, "rng": None, "once": False}
DEFAULTS |= {"own": False, "number": 0, "feature_penalty": 0.0, "out": None}
KINDS = [
    (Batch, (ExplicitBatch, CompressedBatch, ClassBatch, ProjectedBatch)),
    (Features, (ExplicitFeatures, ClassFeatures, ProjectedFeatures, ProjectedClassFeatures)),
    (Fit, (ExplicitFit, ProjectedFit)),
    (Rows, (HeldRows, DrawnRows)),
    (Source, (FreshSource, FixedSource, CompressedFixedSource, CompressedFreshSource, ProjectedSource, ChainSource)),
    (Source, (FixedClassSource, FreshClassSource, ProjectedClassSource)),
]


def optional(method):
    """Return the arguments of a function that may be left out, with their values then."""
    given = inspect.signature(method).parameters.values()
    return {one.name: one.default for one in given if one.default is not one.empty}


def test_what_is_left_out_of_a_question_is_the_same_in_every_batch():
    for protocol, kinds in KINDS:
        names = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]
        assert len(names) > 1
        for name, kind in itertools.product(names, (protocol, *kinds)):
            found = optional(getattr(kind, name))
            assert found == {key: DEFAULTS[key] for key in found}, (kind, name)
            assert found.keys() >= optional(getattr(protocol, name)).keys(), (kind, name)
    for method in (ExplicitBatch.messages, ExplicitBatch.map_blocks, ClassBatch.accuracies, GramBatch.messages):
        assert optional(method) == {key: DEFAULTS[key] for key in optional(method)} != {}
    for kind in (ClassFeatures, ProjectedClassFeatures):
        assert optional(kind.gradients_of_clients) == {"feature_penalty": 0.0, "out": None}


def test_a_batch_says_whose_it_is_and_passes_it_on():
    X, y, _ = draw([[6, 6, 6]], 4)
    plain = ExplicitBatch(X, y, active=everyone(X))
    assert (plain.round, plain.n_clients, plain.counts.tolist()) == (0, 3, [[6.0] * 3] * TRIALS)
    batch = ExplicitBatch(X, y, active=2 * everyone(X), round_number=7, n_clients=9)
    fit = batch.project(np.ones((TRIALS, 4, 1))).fit()
    for other in (batch, batch.shifted(np.ones((TRIALS, 1, 4))), *batch.minibatches(4), *batch.split(), fit.shifted()):
        assert (other.round, other.n_clients) == (7, 9)
        assert np.array_equal(other.active, batch.active)


# --- batches made from a batch -------------------------------------------------------------------------------


@pytest.mark.parametrize("common", [False, True], ids=["per client", "one offset"])
@pytest.mark.parametrize("shape", ["m > d", "m < d", "unequal"])
def test_shifted_labels(shape, common):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    asked = Asked(X.shape[1], d, k)
    offset = asked.common if common else asked.theta
    batch = explicit_batch(X, y, counts).shifted(offset)
    full = np.broadcast_to(offset, asked.theta.shape)
    data = [
        [(X_i, y_i - X_i @ full[t, i]) for i, (X_i, y_i) in enumerate(clients)]
        for t, clients in enumerate(rows(X, y, counts))
    ]
    assert np.array_equal(batch.active, everyone(X))
    assert_answers(batch, data, asked)


@pytest.mark.parametrize("ordered", [False, True], ids=["as they lie", "ordered"])
@each("size", [1, 3, 4, 9, 100])
@pytest.mark.parametrize(
    "counts", [[[9, 9, 9, 9]], [[1, 2, 3, 9], [9, 3, 5, 6], [4, 9, 2, 3]]], ids=["equal", "unequal"]
)
def test_minibatches(counts, size, ordered):
    X, y, counts = draw(counts, 5)
    _, p, m, d = X.shape
    asked = Asked(p, d, 2)
    everything = np.broadcast_to(np.arange(m), (TRIALS, p, m))
    order = np.random.default_rng(4).permuted(everything, axis=-1) if ordered else None
    batches = list(explicit_batch(X, y, counts).minibatches(size, order))
    assert len(batches) == -(-m // size)
    for number, batch in enumerate(batches):
        data = []
        for t in range(TRIALS):
            data.append([])
            for i in range(p):
                own = [j for j in (everything if order is None else order)[t, i] if j < counts[t, i]]
                chosen = own[number * size : (number + 1) * size]
                data[t].append((X[t, i, chosen], y[t, i, chosen]))
        assert_answers(batch, data, asked)
        for t, i in np.ndindex(TRIALS, p):
            X_i, y_i = data[t][i]
            assert np.array_equal(batch.X[t, i, : len(y_i)], X_i)
            assert np.array_equal(batch.y[t, i, : len(y_i)], y_i)
            assert not batch.X[t, i, len(y_i) :].any()
            assert not batch.y[t, i, len(y_i) :].any()


@pytest.mark.parametrize(
    "counts", [[[8, 8, 8]], [[7, 7, 7]], [[2, 3, 9], [9, 4, 5], [6, 2, 3]]], ids=["even", "odd", "unequal"]
)
def test_split_gives_the_two_halves(counts):
    X, y, counts = draw(counts, 4)
    asked = Asked(3, 4, 2)
    for part, batch in enumerate(explicit_batch(X, y, counts).split()):
        halves = [
            [(X_i[part * h : (part + 1) * h], y_i[part * h : (part + 1) * h]) for X_i, y_i, h in with_half]
            for with_half in ([(X_i, y_i, len(y_i) // 2) for X_i, y_i in clients] for clients in rows(X, y, counts))
        ]
        assert_answers(batch, halves, asked)


def test_minibatches_in_a_drawn_order():
    """An order that is given counts more than a generator."""
    X, y, counts = draw([[7, 7, 7], [7, 2, 5], [3, 7, 7]], 4)
    batch = explicit_batch(X, y, counts)

    def random():
        return TrialRandom(generators(1, Stream.ALGORITHM, range(TRIALS)))

    order = random().permutations((3,), 7)
    pairs = [
        (batch.minibatches(3, rng=random()), batch.minibatches(3, order)),
        (batch.minibatches(3, order[..., ::-1], rng=random()), batch.minibatches(3, order[..., ::-1])),
    ]
    for one, other in pairs:
        for part, wanted in zip(one, other, strict=True):
            assert np.array_equal(part.X, wanted.X)
            assert np.array_equal(part.y, wanted.y)


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("counts", [[[9, 9, 9]], [[11, 11, 11]], [[3, 4, 9], [9, 5, 6], [7, 11, 3]]])
def test_split_gives_as_many_parts_as_are_asked(counts, parts, rest):
    X, y, counts = draw(counts, 4)
    batch = explicit_batch(X, y, counts)
    found = batch.split(parts, rest=rest) if rest else batch.split(parts)
    assert len(found) == parts
    for part, batch in enumerate(found):
        start = part * (counts // parts)
        sizes = counts - start if rest and part == parts - 1 else counts // parts
        assert np.array_equal(batch.counts, sizes)
        assert batch.X.shape == (TRIALS, 3, sizes.max(), 4)
        for t, i in np.ndindex(TRIALS, 3):
            size, own = int(sizes[t, i]), slice(int(start[t, i]), int(start[t, i] + sizes[t, i]))
            assert np.array_equal(batch.X[t, i, :size], X[t, i, own])
            assert np.array_equal(batch.y[t, i, :size], y[t, i, own])
            assert not batch.X[t, i, size:].any()
            assert not batch.y[t, i, size:].any()


def test_split_refuses_a_single_sample():
    X, y, counts = draw([[4, 1, 3]], 4)
    with pytest.raises(ValueError, match="at least 2 samples"):
        explicit_batch(X, y, counts).split()


# --- certificates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["m > d", "m < d", "m < k", "unequal"])
def test_gradients_are_central_differences_of_the_loss(shape):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    p = X.shape[1]
    batch, asked = explicit_batch(X, y, counts), Asked(p, d, k)
    features = batch.project(asked.B)
    h = 0.5  # the loss is quadratic, so central differences are exact at any width

    def predictors(B, W):
        return W @ B.swapaxes(1, 2)

    theta, W, B = (
        np.empty((TRIALS, p, d)),
        np.empty((TRIALS, p, k)),
        np.empty((TRIALS, d, k)),
    )
    for j, e in enumerate(h * np.eye(d)):
        theta[..., j] = (batch.loss(asked.theta + e) - batch.loss(asked.theta - e)) / (2 * h)
        for c in range(k):
            E = np.outer(e, np.eye(k)[c])
            above, below = batch.loss(predictors(asked.B + E, asked.W)), batch.loss(predictors(asked.B - E, asked.W))
            B[:, j, c] = (asked.weights * (above - below)).sum(axis=1) / (2 * h)
    for c, e in enumerate(h * np.eye(k)):
        above, below = batch.loss(predictors(asked.B, asked.W + e)), batch.loss(predictors(asked.B, asked.W - e))
        W[..., c] = (above - below) / (2 * h)
    np.testing.assert_allclose(batch.gradient(asked.theta), theta, **TOLERANCE)
    np.testing.assert_allclose(features.head_gradient(asked.W), W, **TOLERANCE)
    np.testing.assert_allclose(features.representation_gradient(asked.W, asked.weights), B, **TOLERANCE)


@pytest.mark.long
@each("ridge", [0.0, 1e-3, 2.0])
@each("shape", SHAPES)
def test_normal_equations_hold_and_norms_are_least(shape, ridge):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    p = X.shape[1]
    batch, asked = explicit_batch(X, y, counts), Asked(p, d, k)
    features = batch.project(asked.B)
    heads, theta = features.fit(ridge).W, batch.least_squares(ridge)
    np.testing.assert_allclose(features.head_gradient(heads) + ridge * heads, 0, atol=1e-10)
    np.testing.assert_allclose(batch.gradient(theta) + ridge * theta, 0, atol=1e-10)
    A, b = batch.normal_equations()
    np.testing.assert_allclose((A @ theta[..., None])[..., 0] + ridge * theta, b, **TOLERANCE)
    for t, i in np.ndindex(TRIALS, p):
        X_i = X[t, i, : int(counts[t, i])]
        for rows_i, solution in ((X_i, theta[t, i]), (X_i @ asked.B[t], heads[t, i])):
            # of all solutions the shortest is the one in the span of the rows
            np.testing.assert_allclose(np.linalg.pinv(rows_i) @ (rows_i @ solution), solution, **TOLERANCE)


POOLS = {**SHAPES, "empty clients": ([[0, 4, 0, 9], [2, 0, 0, 9], [1, 1, 1, 9]], 5, 3), "n m < d": ([[2, 1, 3]], 9, 2)}


@pytest.fixture(params=["one block", "a block for each client"])
def blocks(request, monkeypatch):
    """Read the rows in one block, or client by client."""
    if request.param != "one block":
        monkeypatch.setattr("linfed.numerics.linalg.CACHE_VALUES", 1)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("shape", POOLS)
def test_pooled_least_squares(shape):
    counts, d, k = POOLS[shape]
    X, y, counts = draw(counts, d)
    batch, weights = explicit_batch(X, y, counts), Asked(X.shape[1], d, k).weights
    theta = batch.pooled_least_squares(weights)
    for t, clients in enumerate(rows(X, y, counts)):
        own_X, own_y = zip(*clients, strict=True)
        np.testing.assert_allclose(theta[t], [ref.stacked_least_squares(own_X, own_y, weights[t])], **TOLERANCE)
        one = slice(t, t + 1)
        alone = explicit_batch(X[one], y[one], counts[one]).pooled_least_squares(weights[one])
        assert np.array_equal(alone, theta[one])
    np.testing.assert_allclose((weights[..., None] * batch.gradient(theta)).sum(axis=1), 0, atol=1e-10)
    alone = np.zeros_like(weights)
    alone[:, -1] = 2.0  # a client that weighs nothing plays no part
    np.testing.assert_allclose(batch.pooled_least_squares(alone)[:, 0], batch.least_squares()[:, -1], **TOLERANCE)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("m", [3, 5, 9])
def test_dependent_samples_give_the_shortest_pooled_least_squares(m):
    X, y, _ = draw([[m, m, m]], 5)
    X[..., 4] = X[..., 0] - 2 * X[..., 1]
    X[1] = X[1, :1, :1]
    theta = explicit_batch(X, y, np.full((TRIALS, 3), float(m))).pooled_least_squares(np.ones((TRIALS, 3)))
    for t in range(TRIALS):
        np.testing.assert_allclose(theta[t], [ref.stacked_least_squares(X[t], y[t], np.ones(3))], **TOLERANCE)


@pytest.mark.parametrize("shape", ["m == k", "m < k", "unequal"])
def test_gradient_is_exactly_zero_where_samples_do_not_exceed_k(shape):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    features = explicit_batch(X, y, counts).project(Asked(X.shape[1], d, k).B)
    fit = features.fit()
    for i in range(X.shape[1]):
        alone = np.zeros(counts.shape)
        alone[:, i] = 1.0
        moves = fit.representation_gradient(alone).any(axis=(1, 2))
        assert np.array_equal(moves, counts[:, i] > k)
        left = fit.shifted().y[:, i].any(axis=-1)
        assert np.array_equal(left, counts[:, i] > k)


@pytest.mark.parametrize("cause", ["B", "samples", "a zero column of B"])
@pytest.mark.parametrize("m", [2, 3, 4, 8])
def test_dependent_features_give_the_shortest_head_and_a_flag(m, cause):
    p, d, k = 3, 5, 3
    X, y, counts = draw([[m] * p], d)
    asked = Asked(p, d, k)
    if cause == "samples":  # one client of one trial
        X[1, 2] = np.outer(np.arange(1.0, m + 1), X[1, 2, 0])
        marked = np.array([False, True, False])
    else:
        asked.B[1:, :, 2] = asked.B[1:, :, 0] - 2 * asked.B[1:, :, 1] if cause == "B" else 0.0
        marked = np.array([False, True, True])
    batch = explicit_batch(X, y, counts)
    features = batch.project(asked.B)
    assert not batch.singular.any()
    features.fit(0.3)
    assert not batch.singular.any()  # a ridge makes the head unique
    fit = features.fit()
    # With fewer samples than k every head is a choice of minimum norm: nothing unusual to mark.
    assert np.array_equal(batch.singular, marked if m >= k else [False] * TRIALS)
    assert np.array_equal(batch.shifted(asked.theta).singular, batch.singular)
    wanted = loop_answers(rows(X, y, counts), asked)
    np.testing.assert_allclose(fit.W, wanted["heads"], **TOLERANCE)
    got = fit.representation_gradient()
    np.testing.assert_allclose(got, wanted["representation gradient at the heads"], **TOLERANCE)


def test_a_flag_raised_in_a_derived_batch_is_seen_in_the_batch():
    X, y, counts = draw([[6, 6]], 4)
    batch = explicit_batch(X, y, counts)
    B = np.ones((TRIALS, 4, 2))
    B[0, :2, 0] = -1.0
    batch.shifted(np.ones((TRIALS, 1, 4))).project(B).fit()
    assert np.array_equal(batch.singular, [False, True, True])


@pytest.mark.parametrize("m", [3, 5, 9])
def test_dependent_samples_give_the_shortest_least_squares(m):
    X, y, counts = draw([[m, m, m]], 5)
    X[0, 1] = np.outer(np.arange(1.0, m + 1), X[0, 1, 0])
    X[2, 0, 1:] = 0.0
    batch = explicit_batch(X, y, counts)
    wanted = loop_answers(rows(X, y, counts), Asked(3, 5, 2))
    np.testing.assert_allclose(batch.least_squares(), wanted["least squares"], **TOLERANCE)
    np.testing.assert_allclose(batch.least_squares(0.3), wanted["ridge"], **TOLERANCE)
