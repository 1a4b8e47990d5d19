"""Ground truths, samples and traces for the tests of FLUTE's theory."""

import functools

import numpy as np

import linfed as lf
from experiments.flute import flute_rate_and_floor, flute_theorem55
from linfed.theory import flute as theory
from tests.helpers import normal


def said(beginning):
    """Return the fields of the claim that begins with these words, as its statistic gives them to a judge."""
    claims = (*flute_theorem55.CLAIMS, *flute_rate_and_floor.CLAIMS)
    one = next(one for one in claims if one.sentence.startswith(beginning))
    wanted = one.required or one.statistic.required
    fields = {"claim": one.sentence, "setting": "w", "source": one.source, "statistic": one.statistic.words}
    fields |= {"claimed_low": wanted.low, "claimed_high": wanted.high, "strict": wanted.strict}
    return fields if one.theorem is None else fields | {"theorem": one.theorem}


FAILS = {"claim": "It holds", "setting": "w", "source": "our prediction"}
"""Fields for judges of shares of failures."""

SHAPES = {"n < d": (5, 8), "n == d": (6, 6), "n > d": (9, 4)}

EXACT = {"rtol": 1e-12, "atol": 1e-13}

TRUTHS = {"gaussian": {}, "rank 3": {"rank": 3}, "a spectrum of 2": {"spectrum": [2.0, 1.0]}}


def made(shape, spectrum=None, **more):
    n, d = SHAPES[shape] if isinstance(shape, str) else shape
    return lf.UnderParameterized(n_clients=n, dim=d, spectrum=spectrum, **more)


def balanced(cut):
    """Return B and W of a truth in factors with ``B'B = W'W`` diagonal."""
    U, s, Vt = np.linalg.svd(np.swapaxes(cut.dense(), -1, -2), full_matrices=False)
    k = cut.B.shape[-1]
    root = np.sqrt(s[:, None, :k])
    return U[..., :k] * root, np.swapaxes(Vt, -1, -2)[..., :k] * root


def hand_made(error=None, **changes):
    trials = 2 if error is None else len(error)
    fields = {
        "rank": 1,
        "n_clients": 4,
        "step_size": 0.001,
        "spectrum": np.array([[1.0, 0.2, 0.0]] * trials),
        "rounds": np.array([0, 10, 20, 30]),
        "error": np.full((2, 4), 0.1) if error is None else np.array(error),
        "inside": np.ones((trials, 4), dtype=bool),
        "region": np.zeros((trials, 4, 3)),
        "entry": np.array([10.0, 0.0] * (trials // 2)),
        "identity": np.full((trials, 4), np.nan),
        "growth": np.full((trials, 4), np.nan),
        "remainder": np.zeros((trials, 4)),
        "alive": np.ones((trials, 4), dtype=bool),
    }
    return theory.FluteTrace(**{"rms": fields["error"]} | fields | changes)


COUNTS = [12, 30, 9, 14]


@functools.cache
def world(d=4):
    X = [normal(m, d, seed=20 + i) for i, m in enumerate(COUNTS)]
    y = [normal(m, seed=40 + i) for i, m in enumerate(COUNTS)]
    return X, y, lf.GivenSamples(X, y).normal_equations()[0]
