"""Shares of clients, rounded half up as they are written in decimal."""

import math
from fractions import Fraction

import numpy as np

from linfed.numerics.rounding import rounded_share


def test_shares_are_rounded_as_they_are_written():
    sizes = [1, 2, 3, 7, 10, 25, 50, 64, 99, 100, 200, 777, 1000, 10**4, 10**6]
    shares = [(k / 1000, Fraction(k, 1000)) for k in range(1, 1001, 3)]
    shares += [(p / q, Fraction(p, q)) for q in (3, 6, 7, 14, 22, 49, 60) for p in range(1, q)]
    shares += [(share, Fraction(str(share))) for share in np.random.default_rng(0).uniform(size=100)]
    for share, exact in shares:
        wanted = [math.floor(exact * n + Fraction(1, 2)) for n in sizes]
        assert rounded_share(share, np.array(sizes)).tolist() == wanted
