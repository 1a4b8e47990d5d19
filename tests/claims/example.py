"""A table of two methods at three numbers of clients, and the findings of claims about it."""

import numpy as np

import linfed as lf
from linfed import claims as c

RNG = np.random.default_rng(0)
TRIALS = 12
FIELDS = {"claim": "t", "setting": "", "statistic": "s", "source": c.OWN_PREDICTION}


def row(method="A", n=10, scale=1.0, **columns):
    error = scale * RNG.uniform(0.9, 1.1, TRIALS) / n
    return {"method": method, "n": n, "problem.dim": 5 * n, "error": error, "bound": np.full(TRIALS, 0.1)} | columns


TABLE = lf.Table([row(method, n, scale) for n in (10, 40, 20) for method, scale in (("A", 1.0), ("B", 1.04))])
FIRST = TABLE.select(method="A", n=10)


def judged(statistic, table=TABLE, **more):
    """Return the findings of a claim about a table."""
    return c.judged([c.Claim("t", c.OWN_PREDICTION, statistic, **more)], {"runs": table})


def only_finding(statistic, table=TABLE, **more):
    """Return the one finding of a claim."""
    (found,) = judged(statistic, table, **more)
    return found


def settings(table=TABLE, **more):
    """Return the settings of the findings of a claim, in their order."""
    statistic = c.measured("s", lambda *rows: (0.2, 0.1, 0.3), c.at_most(1.0))
    return [one.setting for one in judged(statistic, table, **more)]
