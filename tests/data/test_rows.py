"""Rows of a round: blocks that fit into cache, rows that are drawn when they are read, and copies by column."""

import numpy as np
import pytest

from linfed.data import rows as data_rows
from linfed.data.explicit import ExplicitBatch
from linfed.data.labels import LabelLaw
from linfed.data.rows import DrawnRows, HeldRows, Workspace
from linfed.data.sources import FixedSource
from linfed.numerics import linalg
from linfed.numerics.threads import VARIABLE
from tests.data.batches import (
    CUTS,
    SHAPES,
    TOLERANCE,
    TRIALS,
    Asked,
    answers,
    assert_answers,
    assert_same_bits,
    draw,
    everyone,
    explicit_batch,
    rows,
)


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


@pytest.mark.parametrize("labels", ["given", "law"])
@pytest.mark.parametrize(
    ("shape", "cut"),
    [
        ("m > d", "two clients"),
        ("m < k", "one client"),
        pytest.param("several blocks of clients", "default", marks=pytest.mark.long),
    ],
)
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
    for large, threads in ((X.size - 1, 2), (X.size + 1, 1)):
        monkeypatch.setattr(data_rows, "LARGE", large)
        assert (batch.rows.threads, drawn.rows.threads) == (threads, threads)


# --- copies by column ----------------------------------------------------------------------------------------


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
