"""Problems, algorithms and rounds for the tests of the shortcut draft's equations."""

import linfed as lf
from linfed.theory import shortcut as theory
from tests.helpers import rounds_of


def made(n, d, k, **more):
    return lf.SharedWithShortcuts(**{"n_clients": n, "dim": d, "rank": k, "shortcut_norm": 0.7, **more})


def algorithm_of(k, **more):
    return lf.FedRepShortcut(**{"rank": k, "step_size": 0.1, "solver": lf.ClosedForm(), "init": "random", **more})


def seen_rounds(algorithm, problem, data, *, n_rounds=5, trials=2, seed=3, engine="explicit", **more):
    """Return the rounds of a run in the draft's symbols."""
    truth = problem.truth(seed, range(trials))
    run = {"data": data, "n_rounds": n_rounds, "trials": trials, "seed": seed, "engine": engine, **more}
    return [theory.ShortcutRound.of(step, algorithm, truth) for step in rounds_of(algorithm, problem, **run)]
