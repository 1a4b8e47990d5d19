"""Invalid calls: each raises at once, in one line that names the argument, its value and what is right."""

import ast
import copy
import inspect
import pickle
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from linfed import theory
from linfed._values import Configuration
from linfed.checks import suggestion
from tests.helpers import assert_one_line, each, normal
from tests.package import fuzz

NAN, INF = float("nan"), float("inf")
PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2)
GIVEN = lf.GivenSamples(np.ones((8, 3, 6)), np.ones((8, 3)))
FAMILY = {
    lf.FedAvg: {"step_size": 0.1},
    lf.FedPer: {"rank": 2, "step_size": 0.1},
    lf.LGFedAvg: {"rank": 2, "step_size": 0.1},
    lf.FedRoD: {"rank": 2, "step_size": 0.1},
    lf.FedRolex: {"step_size": 0.1},
    lf.Oracle: {"rank": 2},
    lf.Personalized: {"base": lf.Oracle(rank=2), "ridge": 0.1},
}
THREE_CLIENTS = [[0, 1, 2]] * 4


def fedrep(**changes):
    return lf.FedRep(**{"rank": 2, "step_size": 0.1} | changes)


def fedavg(**changes):
    return lf.FedAvg(**FAMILY[lf.FedAvg] | changes)


def flute(**changes):
    return lf.FLUTE(**{"rank": 2, "step_size": 0.1} | changes)


def fedper(**changes):
    return lf.FedPer(**FAMILY[lf.FedPer] | changes)


def shortcut(**changes):
    return lf.FedRepShortcut(**{"rank": 2, "step_size": 0.1} | changes)


def shortcuts(**changes):
    return lf.SharedWithShortcuts(**{"n_clients": 8, "dim": 6, "rank": 2, "shortcut_norm": 0.5} | changes)


def run(algorithm=None, problem=PROBLEM, **changes):
    arguments = {"data": lf.FreshSamples(5), "rounds": 4} | changes
    return lf.simulate(algorithm or fedrep(), problem, **arguments)


def shared(**changes):
    return lf.SharedRepresentation(**{"n_clients": 8, "dim": 6, "rank": 2} | changes)


def spoiled(*shape, value=NAN, at=()):
    array = np.ones(shape)
    for index in at:
        array[index] = value
    return array


def given(X=None, y=None):
    return lf.GivenSamples(np.ones((4, 3, 2)) if X is None else X, np.ones((4, 3)) if y is None else y)


def truth(**arrays):
    return lf.GivenTruth(**arrays)


def ones(*shape):
    return np.ones(shape)


CALLS = {
    # --- rank ---
    "rank above dim, learned": (lambda: run(fedrep(rank=7)), ["rank = 7", "at most dim = 6"]),
    "rank above dim, true": (lambda: shared(rank=7), ["rank = 7", "at most dim = 6"]),
    "rank above dim, given": (lambda: truth(B=ones(2, 3), W=ones(5, 3)), ["B", "(2, 3)", "rank 3", "at most d = 2"]),
    **{
        f"{name} = {value!r}": (
            lambda name=name, value=value: shared(**{name: value}),
            [f"{name} = {value!r}", "integer"],
        )
        for name in ("rank", "n_clients", "dim")
        for value in (0, -1, 2.0, True, None, "2")
    },
    **{
        f"FedRep, {name} = {value!r}": (
            lambda name=name, value=value: fedrep(**{name: value}),
            [f"{name} = {value!r}", "integer of at least 1"],
        )
        for name in ("rank", "representation_steps")
        for value in (0, -3, 1.5, True)
    },
    # --- the averaging family ---
    **{
        f"{kind.__name__}, {name} = {value!r}": (
            lambda kind=kind, name=name, value=value: kind(**FAMILY[kind] | {name: value}),
            [f"{name} = {value!r}", wanted],
        )
        for kind, name, values, wanted in (
            (lf.FedAvg, "step_size", (0, -0.1, NAN, INF, "fast", True), "positive finite number"),
            (lf.FedAvg, "server_step_size", (0.0, -1, None), "positive finite number"),
            (lf.FedAvg, "local_steps", (0, -2, 1.5, True), "integer of at least 1"),
            (lf.FedAvg, "rank", (0, -1, 2.0, True), "integer of at least 1"),
            (lf.FedPer, "step_size", (0, -0.1, NAN, None), "positive finite number"),
            (lf.FedPer, "server_step_size", (0.0, -1), "positive finite number"),
            (lf.FedPer, "local_steps", (0, 1.5), "integer of at least 1"),
            (lf.FedPer, "rank", (0, 2.0, None), "integer of at least 1"),
            *(
                (kind, name, wrong, wanted)
                for kind in (lf.LGFedAvg, lf.FedRoD)
                for name, wrong, wanted in (
                    ("step_size", (0, -0.1, NAN, None), "positive finite number"),
                    ("server_step_size", (0.0, -1), "positive finite number"),
                    ("local_steps", (0, 1.5), "integer of at least 1"),
                    ("rank", (0, 2.0, None), "integer of at least 1"),
                )
            ),
            (lf.FedRoD, "personal", ("exact", None, lf.ExactHeads), "lf.GradientHeads(steps=1) or lf.ExactHeads()"),
            (lf.FedRoD, "fine_tune", ("exact", True), "lf.ExactHeads(), lf.GradientHeads(steps=10), or None"),
            (lf.Oracle, "rank", (0, 2.0, None), "integer of at least 1"),
            (lf.FedRolex, "model_share", (1.5, INF, 0.0), "positive finite number of at most 1"),
            (lf.Oracle, "ridge", (-1.0, NAN, "a"), "at least 0"),
            (lf.Personalized, "ridge", (0, -1.0, NAN, "a"), "positive finite number"),
            (lf.Personalized, "base", (lf.LocalOnly(),), "an algorithm that learns a representation B"),
            (lf.Personalized, "base", (lf.FedRep, "FedRep", None), "must be an algorithm"),
        )
        for value in values
    },
    **{
        f"fine tuning {heads} of one layer": (
            lambda heads=heads: fedavg(fine_tune=heads),
            [f"fine_tune = {heads!r}", "one-layer", "rank="],
        )
        for heads in (lf.GradientHeads(steps=10), lf.ExactHeads())
    },
    **{
        f"init of one layer, {shown}": (lambda init=init: fedavg(init=init), ["init", "rank="])
        for shown, init in (("moments", "moments"), ("distance", lf.AtDistance(0.5)), ("array", np.eye(6)[:, :2]))
    },
    **{
        f"fine_tune = {value!r}": (
            lambda value=value: fedavg(rank=2, fine_tune=value),
            [f"fine_tune = {value!r}", "lf.ExactHeads()", "lf.GradientHeads(steps=10)", "None"],
        )
        for value in ("exact", "none", True, lf.ExactHeads)
    },
    "unknown weights": (
        lambda: fedavg(weights="sample"),
        ["weights = 'sample'", "did you mean 'samples'?", "'uniform'"],
    ),
    "unknown weights of the pool": (
        lambda: lf.PooledLeastSquares(weights="unifrom"),
        ["weights = 'unifrom'", "did you mean 'uniform'?"],
    ),
    "weights as an array": (lambda: lf.PooledLeastSquares(weights=ones(8)), ["weights", "allowed: 'uniform'"]),
    "unknown init, FedAvg": (lambda: fedavg(rank=2, init="momets"), ["init = 'momets'", "did you mean 'moments'?"]),
    "unknown init, FedPer": (lambda: fedper(init="randm"), ["init = 'randm'", "did you mean 'random'?"]),
    "rank above dim, FedAvg": (lambda: run(fedavg(rank=7)), ["rank = 7", "at most dim = 6"]),
    "rank above dim, FedPer": (lambda: run(fedper(rank=7)), ["rank = 7", "at most dim = 6"]),
    **{
        f"{what}, {kind.__name__}": (lambda kind=kind, changes=changes: run(kind(**FAMILY[kind] | changes)), wanted)
        for kind in (lf.LGFedAvg, lf.FedRoD)
        for what, changes, wanted in (
            ("rank above dim", {"rank": 7}, ["rank = 7", "at most dim = 6"]),
            ("unknown init", {"init": "randm"}, ["init = 'randm'", "did you mean 'random'?"]),
            ("init of another shape", {"init": np.ones((6, 3))}, ["init", "(6, 3)", "(d, k) = (6, 2)"]),
            (
                "init of a larger rank",
                {"init": lf.AtDistance(0.5), "rank": 4},
                ["AtDistance", "rank = 4 to be at most"],
            ),
        )
    },
    "FedRoD without a rank": (lambda: lf.FedRoD(step_size=0.1), ["rank"]),
    "no distance without a B": (
        lambda: run(lf.LGFedAvg(**FAMILY[lf.LGFedAvg]), metrics=["subspace_distance"]),
        ["subspace_distance", "learns no representation B"],
    ),
    "init of another shape, FedAvg": (
        lambda: run(fedavg(rank=2, init=ones(6, 3))),
        ["init", "(6, 3)", "(d, k) = (6, 2)"],
    ),
    "init of another shape, FedPer": (lambda: run(fedper(init=ones(5, 2))), ["init", "(5, 2)", "(d, k) = (6, 2)"]),
    "init of other trials, FedPer": (
        lambda: run(fedper(init=ones(2, 6, 2)), trials=3),
        ["trials = 3", "init", "2 trials"],
    ),
    "oracle without a truth": (
        lambda: run(lf.Oracle(rank=2), None, data=GIVEN),
        ["Oracle requires a ground truth", "reference subspace", "problem="],
    ),
    "oracle above the clients": (
        lambda: run(lf.Oracle(rank=3), truth(S=np.eye(2, 6))),
        ["Oracle requires rank = 3 to be at most the rank of the ground truth, 2"],
    ),
    "oracle above the truth's rank": (lambda: run(lf.Oracle(rank=3)), ["Oracle requires rank = 3", "2"]),
    "oracle below a given subspace": (
        lambda: run(lf.Oracle(rank=2), truth(Phi=ones(8, 6), B=np.eye(6)[:, :3])),
        ["rank 2", "3"],
    ),
    "the true subspace without a truth": (
        lambda: run(fedrep(init=lf.TrueSubspace()), None, data=GIVEN),
        ["FedRep requires a ground truth", "reference subspace", "problem="],
    ),
    "an oracle's init": (lambda: lf.Oracle(rank=2, init="random"), ["init"]),
    "samples to draw": (lambda: lf.FixedSamples(3).draw("shared"), ["problem = 'shared'", "lf.SharedRepresentation"]),
    "trials to draw": (lambda: lf.FixedSamples(3).draw(PROBLEM, trials=0), ["trials = 0", "integer of at least 1"]),
    "seed to draw": (lambda: lf.FixedSamples(3).draw(PROBLEM, seed=-1), ["seed = -1", "non-negative"]),
    "an attribute in lower case altogether": (lambda: lf.flute, ["'flute'", "did you mean 'FLUTE'?"]),
    "an attribute in lower case": (lambda: lf.fedAvg, ["'fedAvg'", "did you mean 'FedAvg'?"]),
    # --- FLUTE ---
    **{
        f"FLUTE, {name} = {value!r}": (
            lambda name=name, value=value: flute(**{name: value}),
            [f"{name} = {value!r}", wanted],
        )
        for name, values, wanted in (
            ("rank", (0, -1, 2.0, True, None), "integer of at least 1"),
            ("step_size", (0, -0.1, NAN, INF, None, True, "fast"), "positive finite number"),
            ("server_step_size", (-1e-9, NAN, INF, True), "finite number of at least 0"),
            ("gamma1", (-0.1, NAN, None, "1/4"), "finite number of at least 0"),
            ("gamma2", (-0.1, INF, None, True), "finite number of at least 0"),
            ("gradient_factor", (0, 3, 1.5, True, "2", None, NAN), "must be 1 or 2"),
        )
        for value in values
    },
    **{
        f"SmallRandom, alpha = {value!r}": (
            lambda value=value: lf.SmallRandom(value),
            [f"alpha = {value!r}", "positive finite number"],
        )
        for value in (0, -1.0, NAN, INF, True, "small")
    },
    **{
        f"FLUTE, init {shown}": (lambda init=init: flute(init=init), ["init = ", "lf.SmallRandom(alpha)", "(B, W)"])
        for shown, init in {
            "None": None,
            "a word": "random",
            "an array": ones(6, 2),
            "a stack": ones(2, 6, 2),
            "one array": (ones(6, 2),),
            "three arrays": (ones(6, 2), ones(8, 2), ones(8, 2)),
            "no heads": (ones(6, 2), None),
            "two words": ("B", "W"),
            "a distance": lf.AtDistance(0.5),
            "a subspace": lf.GivenSubspace(ones(6, 2)),
            "a class": lf.SmallRandom,
        }.items()
    },
    "factors of one axis": (lambda: flute(init=(ones(6), ones(8, 2))), ["init B", "(6,)", "(d, k)", "(trials, d, k)"]),
    "factors of four axes": (lambda: flute(init=(ones(6, 2), ones(1, 1, 8, 2))), ["init W", "(1, 1, 8, 2)", "(n, k)"]),
    "NaN in the heads": (
        lambda: flute(init=(ones(6, 2), spoiled(8, 2, at=[(3, 1)]))),
        ["init W", "1 value ", "(3, 1)"],
    ),
    "complex factors": (lambda: flute(init=(1j * ones(6, 2), ones(8, 2))), ["init B is complex", "real"]),
    "factors of another dimension": (
        lambda: run(flute(init=(ones(5, 2), ones(8, 2)))),
        ["init B", "(5, 2)", "expected (6, 2)", "trial"],
    ),
    "heads of other clients": (
        lambda: run(flute(init=(ones(6, 2), ones(2, 7, 2)))),
        ["init W", "(2, 7, 2)", "expected (8, 2)"],
    ),
    "factors of another rank": (
        lambda: run(flute(init=(ones(6, 3), ones(8, 3)))),
        ["init B", "(6, 3)", "expected (6, 2)"],
    ),
    "factors of other trials": (
        lambda: run(flute(init=(ones(2, 6, 2), ones(8, 2))), trials=3),
        ["trials = 3", "init", "2 trials"],
    ),
    "heads of other trials": (
        lambda: run(flute(init=(ones(6, 2), ones(4, 8, 2))), trials=3),
        ["trials = 3", "init", "4 trials"],
    ),
    "rank above dim, FLUTE": (lambda: run(flute(rank=7)), ["rank = 7", "at most dim = 6"]),
    # --- shortcuts ---
    **{
        f"FedRepShortcut, {name} = {value!r}": (
            lambda name=name, value=value: shortcut(**{name: value}),
            [f"{name} = {value!r}", wanted],
        )
        for name, values, wanted in (
            ("rank", (0, 2.0), "integer of at least 1"),
            ("step_size", (0, NAN, None), "positive finite number"),
            ("representation_steps", (0, True), "integer of at least 1"),
            ("ridge", (-0.1, NAN, None), "finite number of at least 0"),
            ("mixing", (0, 1.0, -0.5, 2), "inside (0, 1)"),
            ("mixing", (NAN, True, "half"), "finite number"),
            ("refit", (1, None, "yes"), "True or False"),
            ("solver", ("closed-form", None, lf.ClosedForm), "lf.GradientSteps(...) or lf.ClosedForm(order=...)"),
        )
        for value in values
    },
    **{
        f"{kind.__name__}, {name} = {value!r}": (
            lambda kind=kind, name=name, value=value: kind(**{name: value}),
            [f"{name} = {value!r}", wanted],
        )
        for kind, name, values, wanted in (
            (lf.GradientSteps, "head_step_size", (0.0, INF, "fast"), "positive finite number"),
            (lf.GradientSteps, "shortcut_step_size", (-0.1, True), "positive finite number"),
            (lf.GradientSteps, "head_steps", (0, 1.0), "integer of at least 1"),
            (lf.GradientSteps, "shortcut_steps", (-1, 1.5, None), "integer of at least 0"),
            (lf.GradientSteps, "order", ("seidel", "joint", 1), "'jacobi', 'gauss-seidel'"),
            (lf.ClosedForm, "order", ("seidel", 1), "'jacobi', 'gauss-seidel', 'joint'"),
        )
        for value in values
    },
    "joint without a ridge": (
        lambda: shortcut(solver=lf.ClosedForm(order="joint")),
        ["solver = ClosedForm(order='joint')", "requires ridge > 0"],
    ),
    "rank above dim, shortcuts": (lambda: run(shortcut(rank=7)), ["rank = 7", "at most dim = 6"]),
    "init of another shape, shortcuts": (
        lambda: run(shortcut(init=ones(5, 2))),
        ["init", "(5, 2)", "(d, k) = (6, 2)"],
    ),
    "factors for shortcuts": (lambda: shortcut(init=lf.SmallRandom()), ["init = ", "'moments'"]),
    "shortcuts on an engine of one B": (
        lambda: run(shortcut(), engine="projected"),
        ["engine = 'projected'", "FedRepShortcut", "'explicit'"],
    ),
    **{
        f"SharedWithShortcuts, {name} = {value!r}": (
            lambda name=name, value=value: shortcuts(**{name: value}),
            [f"{name} = {value!r}", wanted],
        )
        for name, values, wanted in (
            ("shortcut_norm", (-0.1, NAN, None, True), "finite number of at least 0"),
            ("orthogonal", (1, None), "True or False"),
            ("uncorrelated", (1, None), "True or False"),
            ("sparsity", (0, 1.5, True), "integer of at least 1"),
            ("sparsity", (7,), "at most dim = 6"),
            ("clusters", (0, "two"), "integer of at least 1"),
            ("clusters", (9,), "at most n_clients = 8"),
            ("rank", (7,), "at most dim = 6"),
        )
        for value in values
    },
    "sparse and orthogonal": (
        lambda: shortcuts(orthogonal=True, sparsity=2),
        ["orthogonal = True cannot be combined with sparsity = 2"],
    ),
    "sparse and uncorrelated": (
        lambda: shortcuts(uncorrelated=True, sparsity=2),
        ["cannot be combined with sparsity = 2"],
    ),
    "clusters and uncorrelated": (lambda: shortcuts(uncorrelated=True, clusters=3), ["clusters = 3"]),
    "too few clients for uncorrelated shortcuts": (
        lambda: shortcuts(uncorrelated=True, n_clients=2),
        ["uncorrelated = True requires n_clients > rank", "2 <= 2"],
    ),
    "no room for orthogonal shortcuts": (
        lambda: shortcuts(orthogonal=True, rank=6),
        ["orthogonal = True requires dim > rank", "6"],
    ),
    # --- participation ---
    "participation 0": (lambda: run(participation=0), ["participation = 0 ", "from 1 to n_clients = 8"]),
    "participation 0.0": (lambda: run(participation=0.0), ["participation = 0.0", "share in (0, 1]"]),
    "participation above n": (lambda: run(participation=9), ["participation = 9", "n_clients = 8", "share is a float"]),
    "a share above 1": (lambda: run(participation=1.5), ["participation = 1.5", "share in (0, 1]", "give an int"]),
    "a share of 2.0": (lambda: run(participation=2.0), ["participation = 2.0", "share in (0, 1]", "give an int"]),
    "a negative count": (lambda: run(participation=-1), ["participation = -1", "from 1 to n_clients = 8"]),
    "a negative share": (lambda: run(participation=-0.5), ["participation = -0.5", "share in (0, 1]"]),
    "participation NaN": (lambda: run(participation=NAN), ["participation = nan", "share in (0, 1]"]),
    "participation infinite": (lambda: run(participation=INF), ["participation = inf", "share in (0, 1]"]),
    "participation True": (lambda: run(participation=True), ["participation = True", "must be"]),
    "participation a word": (
        lambda: run(participation="all"),
        ["participation = 'all'", "share in (0, 1]", "(rounds, p)"],
    ),
    "participation None": (lambda: run(participation=None), ["participation = None", "share in (0, 1]"]),
    "index too large": (lambda: run(participation=[[0, 8]] * 4), ["participation", "index 8", "n_clients - 1 = 7"]),
    "index negative": (
        lambda: run(participation=[[0, -1]] * 4),
        ["participation", "index -1", "0 to n_clients - 1 = 7"],
    ),
    "index repeated": (lambda: run(participation=[[3, 3]] * 4), ["participation", "twice in one round"]),
    "indices of one round": (lambda: run(participation=[0, 1]), ["participation = [0, 1]", "(rounds, p)"]),
    "indices of other rounds": (lambda: run(participation=THREE_CLIENTS[:3]), ["participation", "(3, 3)", "(4, p)"]),
    "indices of other trials": (
        lambda: run(participation=[THREE_CLIENTS] * 2, trials=3),
        ["participation", "(2, 4, 3)", "(3, 4, p)"],
    ),
    "indices of no client": (lambda: run(participation=np.zeros((4, 0), dtype=int)), ["participation", "(rounds, p)"]),
    "indices that are no integers": (
        lambda: run(participation=ones(4, 3)),
        ["participation", "integer", "(rounds, p)"],
    ),
    "indices of unequal rounds": (lambda: run(participation=[[0], [0, 1]] * 2), ["participation", "(rounds, p)"]),
    # --- step sizes and other numbers ---
    **{
        f"step_size = {value!r}": (
            lambda value=value: fedrep(step_size=value),
            [f"step_size = {value!r}", "positive finite number"],
        )
        for value in (-0.1, 0, 0.0, NAN, INF, -INF, "fast", True, 1j)
    },
    **{
        f"GradientHeads, {name} = {value!r}": (
            lambda name=name, value=value: lf.GradientHeads(**{name: value}),
            [f"{name} = {value!r}", wanted],
        )
        for name, values, wanted in (
            ("steps", (0, -3, 1.5, True, None), "integer of at least 1"),
            ("step_size", (-0.1, 0, NAN, INF, "fast", True, 1j), "positive finite number"),
        )
        for value in values
    },
    **{
        f"ExactHeads, ridge = {value!r}": (
            lambda value=value: lf.ExactHeads(ridge=value),
            [f"ridge = {value!r}", "at least 0"],
        )
        for value in (-1.0, NAN, None)
    },
    **{
        f"heads = {value!r}": (
            lambda value=value: fedrep(heads=value),
            [f"heads = {value!r}", "lf.ExactHeads()", "lf.GradientHeads("],
        )
        for value in ("exact", None, lf.GradientHeads, 3)
    },
    "a ridge by position": (lambda: lf.ExactHeads(0.1), ["write ExactHeads(ridge=0.1)"]),
    "step_size None": (lambda: fedrep(step_size=None), ["step_size = None", "positive finite number"]),
    "step_size of (2, 2)": (lambda: fedrep(step_size=ones(2, 2)), ["step_size has shape (2, 2)", "(rounds,)"]),
    "ridge NaN": (lambda: lf.LocalOnly(ridge=NAN), ["ridge = nan", "at least 0"]),
    "negative noise_std": (lambda: shared(noise_std=-1.0), ["noise_std = -1.0", "at least 0"]),
    **{
        f"noise_std of {kind}": (
            lambda make=make: make(noise_std=1e200),
            ["noise_std = 1e+200", "at most 1e+70", "overflow"],
        )
        for kind, make in {
            "a shared truth": shared,
            "shortcuts": shortcuts,
            "similar representations": lambda **changes: lf.SimilarRepresentations(
                n_clients=8, dim=6, rank=2, **changes
            ),
            "an under-parameterised one": lambda **changes: lf.UnderParameterized(n_clients=8, dim=6, **changes),
            "a given one": lambda **changes: truth(Phi=ones(3, 2), **changes),
        }.items()
    },
    "noise_std infinite": (lambda: truth(Phi=ones(3, 2), noise_std=INF), ["noise_std = inf", "finite"]),
    "head_norm 0": (lambda: shared(head_norm=0.0), ["head_norm = 0.0", "positive"]),
    "n_samples 0, fresh": (lambda: lf.FreshSamples(0), ["n_samples = 0", "integer of at least 1"]),
    **{
        f"fixed samples of different numbers, {kind.__name__}": (
            lambda kind=kind: lf.FixedSamples(kind([8, 20])),
            ["n_samples = ", "8, 20", "must be one integer", "lf.GivenSamples"],
        )
        for kind in (list, tuple, np.array)
    },
    "n_samples 2.5, fixed": (lambda: lf.FixedSamples(2.5), ["n_samples = 2.5", "integer of at least 1"]),
    # --- given samples ---
    "X of two axes": (lambda: given(X=ones(3, 2)), ["X", "(3, 2)", "(n, m, d)", "(trials, n, m, d)"]),
    "X of five axes": (lambda: given(X=ones(1, 1, 4, 3, 2)), ["X", "(1, 1, 4, 3, 2)", "(n, m, d)"]),
    "y of one axis": (lambda: given(y=ones(4)), ["y", "(4,)", "(n, m)"]),
    "y of other clients": (lambda: given(y=ones(5, 3)), ["y", "(5, 3)", "(4, 3)", "(4, 3, 2)"]),
    "y without the trials of X": (lambda: given(X=ones(2, 4, 3, 2)), ["y", "(4, 3)", "(2, 4, 3)"]),
    "y as a column": (lambda: given(y=ones(4, 3, 1)), ["y", "(4, 3, 1)", "(4, 3)"]),
    "NaN in X": (
        lambda: given(X=spoiled(4, 3, 2, at=[(2, 1, 0), (3, 0, 0)])),
        ["X", "2 values", "NaN or infinite", "(2, 1, 0)"],
    ),
    "infinity in X": (lambda: given(X=spoiled(4, 3, 2, value=INF, at=[(0, 2, 1)])), ["X", "1 value ", "(0, 2, 1)"]),
    "NaN in y": (lambda: given(y=spoiled(4, 3, at=[(1, 2)])), ["y", "1 value ", "NaN or infinite", "(1, 2)"]),
    "X of words": (lambda: given(X=[["a"]]), ["X", "array of numbers", "(n, m, d)"]),
    "X complex": (lambda: given(X=1j * ones(4, 3, 2)), ["X", "array of numbers"]),
    **{
        f"{name} {shown}": (
            lambda name=name, value=value: given(**{name: value}),
            [f"{name} must be an array of numbers", *parts],
        )
        for shown, (X, y, parts) in {
            "masked": (
                np.ma.masked_array(ones(4, 3, 2), False),
                np.ma.masked_array(ones(4, 3), True),
                ["masked", "fill"],
            ),
            "masked clients": (
                [np.ma.masked_array(ones(3, 2), True)] * 4,
                [ones(3), ones(3), ones(3), np.ma.masked_array(ones(3), [0, 0, 1])],
                ["masked", "leave them out"],
            ),
            "of digits": (np.full((4, 3, 2), "3"), [["3"] * 3] * 4, ["'3'", "not a number"]),
            "of bytes": (np.full((4, 3, 2), b"3"), np.full((4, 3), b"3"), ["3", "not a number"]),
            "of a digit among numbers": ([[[1.0, "2"]]], [[1.0, 2.0, "3"]] * 4, ["not a number"]),
            "of digits as objects": (
                np.full((4, 3, 2), "3", dtype=object),
                np.full((4, 3), "3", dtype=object),
                ["'3'", "not a number"],
            ),
            "of None": (np.full((4, 3, 2), None), [[1.0, None, 1.0]] * 4, ["None", "not a number"]),
            "of dates": (
                np.full((4, 3, 2), np.datetime64("2024-01-01")),
                [[np.datetime64("2024-01-01")] * 3] * 4,
                ["dates or times", "datetime64[D]"],
            ),
            "of time differences": (
                ones(4, 3, 2).astype("timedelta64[s]"),
                [[1.0, np.timedelta64(3, "s"), 1.0]] * 4,
                ["dates or times", "timedelta64[s]"],
            ),
            "of truth values": (
                ones(4, 3, 2) > 0,
                [[True, 1.0, False]] * 4,
                ["True and False", ".astype(float)"],
            ),
            "of truth values as objects": (
                np.full((4, 3, 2), True, dtype=object),
                np.full((4, 3), np.True_, dtype=object),
                ["True and False"],
            ),
            "of huge integers": ([[[10**400, 1]]], np.full((4, 3), 10**400), ["too large"]),
        }.items()
        for name, value in (("X", X), ("y", y))
    },
    "y longer than float": (
        lambda: given(y=np.full((4, 3), np.longdouble("1e400"))),
        ["y holds 12 values", "infinite"],
    ),
    "X None": (lambda: lf.GivenSamples(None, ones(4, 3)), ["X", "(n, m, d)"]),
    "no clients": (lambda: given(X=ones(0, 3, 2), y=ones(0, 3)), ["X", "(0, 3, 2)", "empty"]),
    "no samples": (lambda: given(X=ones(4, 0, 2), y=ones(4, 0)), ["X", "(4, 0, 2)", "empty"]),
    "no dimension": (lambda: given(X=ones(4, 3, 0)), ["X", "(4, 3, 0)", "empty"]),
    "empty lists": (lambda: lf.GivenSamples([], []), ["X is an empty sequence; it must contain at least one client"]),
    "a threshold of several": (
        lambda: lf.TruncatedAverages(threshold=np.array([1.0, 2.0])),
        ["threshold = array([1., 2.]) must be a positive finite number"],
    ),
    "no dimension beyond the subspace": (
        lambda: lf.theory.known_heads_bound(1e5, dim=2, rank=2, noise_std=1.0),
        ["dim = 2 must be an integer of at least 3"],
    ),
    "a negative ratio of steps": (
        lambda: lf.theory.flute_population_minimizer(
            lf.UnderParameterized(n_clients=5, dim=4, spectrum=[2, 1]).truth(0, [0]), 1, step_ratio=-0.5
        ),
        ["step_ratio = -0.5 must be a finite number of at least 0"],
    ),
    "lists of unequal length": (
        lambda: given(X=[ones(2, 3), ones(4, 3)], y=[ones(2)]),
        ["y", "n = 2 arrays", "(m_i,)"],
    ),
    "lists of unequal dimension": (
        lambda: given(X=[ones(2, 3), ones(2, 4)], y=[ones(2), ones(2)]),
        ["X[1]", "(2, 4)", "(2, 3)"],
    ),
    "lists of unequal counts": (
        lambda: given(X=[ones(2, 3), ones(4, 3)], y=[ones(2), ones(3)]),
        ["y[1]", "(3,)", "(4,)", "(4, 3)"],
    ),
    "labels in unequal lists": (lambda: given(X=[ones(2, 3)] * 2, y=[ones(2), ones(3)]), ["y", "(n, m)"]),
    "a client without samples": (
        lambda: given(X=[ones(0, 3), ones(2, 3)], y=[ones(0), ones(2)]),
        ["X[0]", "empty"],
    ),
    "lists without dimension": (lambda: given(X=[ones(1, 0), ones(2, 0)], y=[ones(1), ones(2)]), ["X[0]", "(1, 0)"]),
    "NaN in a list": (
        lambda: given(X=[ones(2, 3), spoiled(1, 3, at=[(0, 2)])], y=[ones(2), ones(1)]),
        ["X[1]", "1 value ", "(0, 2)"],
    ),
    "a ragged client": (lambda: given(X=[[[1.0, 2.0], [3.0]], [[1.0, 2.0]]], y=[[1.0, 2.0], [1.0]]), ["X"]),
    "data of another dimension": (
        lambda: run(data=given(X=ones(8, 3, 5), y=ones(8, 3))),
        ["X", "(8, 3, 5)", "n = 8", "d = 6"],
    ),
    "data of other clients": (lambda: run(data=given()), ["X", "(4, 3, 2)", "n = 8", "d = 6"]),
    "data of other trials": (
        lambda: run(data=given(X=ones(2, 8, 3, 6), y=ones(2, 8, 3)), trials=3),
        ["trials = 3", "data", "2 trials"],
    ),
    # --- given truth ---
    "no regressors": (lambda: truth(), ["B and W", "S", "Phi"]),
    "heads without B": (lambda: truth(W=ones(4, 2), S=ones(4, 3)), ["W", "W requires B"]),
    "B without heads": (lambda: truth(B=ones(3, 2)), ["B and W"]),
    "B beside S without heads": (lambda: truth(B=ones(3, 2), S=ones(4, 3)), ["B with S requires W", "Phi="]),
    "Phi beside heads": (
        lambda: truth(Phi=ones(4, 3), B=ones(3, 2), W=ones(4, 2)),
        ["Phi", "Phi cannot be combined with W or S"],
    ),
    "B of another dimension": (lambda: truth(B=ones(5, 2), Phi=ones(4, 3)), ["B", "(5, 2)", "(3, 2)"]),
    "heads of another rank": (lambda: truth(B=ones(3, 2), W=ones(4, 1)), ["B", "(3, 2)", "(3, 1)"]),
    "S of other clients": (lambda: truth(B=ones(3, 2), W=ones(4, 2), S=ones(5, 3)), ["S", "(5, 3)", "n = 4"]),
    "truths of unequal trials": (lambda: truth(B=ones(2, 3, 2), W=ones(5, 4, 2)), ["2", "5", "trials"]),
    "Phi of one axis": (lambda: truth(Phi=ones(3)), ["Phi", "(3,)", "(n, d)", "(trials, n, d)"]),
    "NaN in Phi": (lambda: truth(Phi=spoiled(4, 3, at=[(1, 0), (1, 1), (3, 2)])), ["Phi", "3 values", "(1, 0)"]),
    "infinity in heads": (
        lambda: truth(B=ones(3, 1), W=spoiled(4, 1, value=-INF, at=[(3, 0)])),
        ["W", "1 value ", "(3, 0)"],
    ),
    "truth of no clients": (lambda: truth(Phi=ones(0, 3)), ["Phi", "(0, 3)"]),
    "truth of no rank": (lambda: truth(B=ones(3, 0), W=ones(4, 0)), ["(3, 0)"]),
    "truth of no trials": (lambda: truth(Phi=ones(0, 4, 3)), ["Phi", "(0, 4, 3)"]),
    "truth of other trials": (
        lambda: run(problem=truth(Phi=ones(2, 4, 3)), trials=3),
        ["trials = 3", "problem", "2 trials"],
    ),
    # --- names ---
    "unknown metric": (lambda: run(metrics=["risks"]), ["metrics = 'risks'", "did you mean 'risk'?", "allowed"]),
    "metric that does not apply": (
        lambda: run(lf.LocalOnly(), metrics=["subspace_distance"]),
        ["metrics = 'subspace_distance'", "no representation"],
    ),
    "metric without a truth": (
        lambda: run(problem=None, data=GIVEN, metrics=["risk"]),
        ["metrics = 'risk'", "without one", "problem="],
    ),
    "metric that is no word": (lambda: run(metrics=[3]), ["metrics = 3", "allowed"]),
    "metrics that are no words": (lambda: run(metrics=3), ["metrics = 3"]),
    "unknown init": (lambda: fedrep(init="momets"), ["init = 'momets'", "did you mean 'moments'?", "'random'"]),
    "unknown aggregate": (lambda: fedrep(aggregate="Mean"), ["aggregate = 'Mean'", "did you mean 'mean'?", "'sum'"]),
    "unknown design": (lambda: shared(design="gausian"), ["design = 'gausian'", "did you mean 'gaussian'?", "'cube'"]),
    "design of a truth": (
        lambda: truth(Phi=ones(3, 2), design="sfere"),
        ["design = 'sfere'", "did you mean 'sphere'?"],
    ),
    "design that is no word": (lambda: shared(design=np.eye(6)), ["design", "allowed", "'gaussian'"]),
    "orthonormalize a word": (lambda: fedrep(orthonormalize="no"), ["orthonormalize = 'no'"]),
    "rotate_heads without QR": (
        lambda: fedrep(rotate_heads=True, orthonormalize=False),
        ["rotate_heads = True", "orthonormalize = True"],
    ),
    "rotate_heads a number": (lambda: fedrep(rotate_heads=2), ["rotate_heads = 2"]),
    "unknown attribute": (lambda: lf.FedReb, ["'linfed'", "'FedReb'", "did you mean 'FedRep'?"]),
    "unknown attribute, far from all": (lambda: lf.zzzzzz, ["'linfed'", "'zzzzzz'"]),
    # --- sizes of the run ---
    **{
        f"{name} = {value!r}": (
            lambda name=name, value=value: run(**{name: value}),
            [f"{name} = {value!r}", "non-negative integer" if name == "seed" else "integer of at least"],
        )
        for name, values in {
            "rounds": (-1, 2.0, None, True),
            "trials": (0, -1, 1.5, "3", True),
            "record_every": (0, -1, 0.5, None),
            "workers": (0, -1, 1.5, None, True),
            "seed": (-1, 1.5, None, "7", True, ()),
        }.items()
        for value in values
    },
    "rounds beyond integers": (
        lambda: run(rounds=10**30, record_every=10**30),
        [f"rounds = {10**30}", "from 0 to 9223372036854775807"],
    ),
    "rounds beyond memory": (lambda: run(rounds=10**12), ["rounds = 1000000000000", "record_every = 1 must be larger"]),
    "moments of too many dimensions": (
        lambda: run(problem=shared(dim=200_000), data=lf.FreshSamples(2)),
        ["init = Moments", "200000 x 200000 matrix", "lf.Moments(clients=...)", "lf.AtDistance(delta)"],
    ),
    "moments of too many samples": (
        lambda: run(problem=shared(n_clients=10**6, dim=1000), data=lf.FreshSamples(1000)),
        ["init = Moments", "1e+15 operations", "lf.Moments(clients=...)", "lf.AtDistance(delta)"],
    ),
    "a basis without full rank": (lambda: lf.subspace_distance(ones(4, 2), ones(4, 1)), ["B1", "full column rank"]),
    "bases of two dimensions": (lambda: lf.subspace_distance(ones(4, 1), ones(5, 1)), ["(4, 1)", "(5, 1)", "agree"]),
    "a basis of one axis": (lambda: lf.subspace_distance(ones(4), ones(4, 1)), ["B1", "(4,)", "(d, k)"]),
    "a class for a problem": (lambda: run(problem=lf.SharedRepresentation), ["problem = <class", "must be a problem"]),
    "a class for a design": (lambda: shared(design=lf.Rademacher), ["design", "lf.Rademacher()"]),
    "complex samples": (lambda: given(X=1j * ones(4, 3, 2), y=ones(4, 3)), ["X is complex", "real"]),
    "seed tuple": (lambda: run(seed=(1, -2)), ["seed = -2", "integer of at least 0"]),
    "memory_budget": (lambda: run(memory_budget=-1e9), ["memory_budget = -1000000000.0", "positive"]),
    # --- numbers that are none ---
    **{
        f"{name} = {value!r}": (lambda name=name, value=value: fedrep(**{name: value}), [name, wanted])
        for name, wanted in (("rank", "integer of at least 1"), ("step_size", "positive finite number"))
        for value in ("3", np.timedelta64(3, "s"), np.datetime64("2024-01-01"), np.ma.masked, np.ma.array(3), 3j, b"3")
    },
    "a time difference for a seed": (lambda: run(seed=np.timedelta64(3, "s")), ["seed", "non-negative integer"]),
    "a time difference for participants": (
        lambda: run(participation=np.timedelta64(3, "s")),
        ["participation", "share in (0, 1]"],
    ),
    # --- numbers too large to compute with ---
    **{
        f"{name}, {digits} digits": (
            lambda call=call, digits=digits: call(10 ** (digits - 1)),
            [name.removesuffix(" to draw").strip()],
        )
        for digits in (401, 5001)
        for name, call in {
            "n_clients": lambda value: shared(n_clients=value),
            "dim": lambda value: shared(dim=value),
            "rank": lambda value: shared(rank=value),
            "gap_after": lambda value: lf.UnderParameterized(n_clients=8, dim=6, gap=0.1, gap_after=value),
            "sparsity": lambda value: shortcuts(sparsity=value),
            "clusters": lambda value: shortcuts(clusters=value),
            "n_samples": lf.FreshSamples,
            "n_samples ": lambda value: lf.FixedSamples(value),
            "n_samples[0]": lambda value: run(rounds=0).new_clients([value]),
            "clients": lambda value: run(rounds=0).new_clients([3], clients=value),
            "clients ": lambda value: lf.Moments(clients=value),
            "rounds": lambda value: run(rounds=value),
            "trials": lambda value: run(trials=value),
            "trials to draw": lambda value: lf.FixedSamples(3).draw(PROBLEM, trials=value),
            "workers": lambda value: run(workers=value),
            "participation": lambda value: run(participation=value),
            "memory_budget": lambda value: run(memory_budget=value),
            "steps": lambda value: fedrep(heads=lf.GradientHeads(steps=value)),
            "ridge": lambda value: lf.ExactHeads(ridge=value),
            "representation_steps": lambda value: fedrep(representation_steps=value),
            "local_steps": lambda value: fedper(local_steps=value),
            "shortcut_steps": lambda value: lf.GradientSteps(shortcut_steps=value),
            "gradient_factor": lambda value: flute(gradient_factor=value),
            "step_size": lambda value: fedrep(step_size=value),
            "noise_std": lambda value: shared(noise_std=value),
            "head_norm": lambda value: shared(head_norm=value),
            "condition_number": lambda value: shared(condition_number=value),
            "heterogeneity": lambda value: shared(heterogeneity=value),
        }.items()
    },
    "trials beyond memory": (lambda: run(trials=10**15), ["trials = 1000000000000000", "memory"]),
    "clients of one dimension beyond memory": (
        lambda: run(
            problem=shared(n_clients=2**63 - 1), participation=3, rounds=1, **{"algorithm": fedrep(init="random")}
        ),
        ["one trial needs about", "n_clients"],
    ),
    # --- kinds ---
    "no algorithm": (lambda: run("FedRep"), ["algorithm = 'FedRep'", "lf.FedRep(rank=2"]),
    "an array for an algorithm": (
        lambda: lf.simulate(ones(3, 3), PROBLEM, data=GIVEN, rounds=1),
        ["algorithm", "lf.FedRep("],
    ),
    "an algorithm's class": (lambda: run(lf.FedRep), ["algorithm = ", "lf.FedRep(rank=2"]),
    "no problem": (lambda: run(problem="shared"), ["problem = 'shared'", "lf.SharedRepresentation"]),
    "no data": (lambda: run(data=ones(8, 3, 6)), ["data", "lf.FreshSamples", "lf.GivenSamples"]),
    "labels without a truth": (lambda: run(problem=None), ["FreshSamples(n_samples=5)", "problem="]),
    "labels without a truth, fixed": (
        lambda: run(problem=None, data=lf.FixedSamples(4)),
        ["FixedSamples(n_samples=4", "problem="],
    ),
    # --- initial states ---
    "delta negative": (lambda: lf.AtDistance(-0.1), ["delta = -0.1", "from 0 to 1"]),
    "delta above 1": (lambda: lf.AtDistance(1.1), ["delta = 1.1", "from 0 to 1"]),
    "delta NaN": (lambda: lf.AtDistance(NAN), ["delta = nan", "from 0 to 1"]),
    "distance without a truth": (
        lambda: run(fedrep(init=lf.AtDistance(0.5)), None, data=GIVEN),
        ["init = AtDistance(delta=0.5)", "truth", "problem="],
    ),
    "distance above the clients": (
        lambda: run(fedrep(rank=3, init=lf.AtDistance(0.5)), truth(S=np.eye(2, 6))),
        ["init = AtDistance(delta=0.5) requires rank = 3 to be at most the rank of the ground truth, 2"],
    ),
    "distance in too few dimensions": (
        lambda: run(fedrep(rank=2, init=lf.AtDistance(0.5)), shared(dim=3)),
        ["init = AtDistance(delta=0.5)", "dim >= 2 rank", "dim = 3", "rank = 2"],
    ),
    "distance to a smaller truth": (
        lambda: run(fedrep(rank=3, init=lf.AtDistance(0.5))),
        ["init = AtDistance(delta=0.5)", "rank = 3", "2"],
    ),
    "distance to a larger given subspace": (
        lambda: run(fedrep(init=lf.AtDistance(0.5)), truth(Phi=ones(8, 6), B=np.eye(6)[:, :3])),
        ["init = AtDistance(delta=0.5)", "rank 2", "3"],
    ),
    "moments of too many clients": (lambda: run(fedrep(init=lf.Moments(clients=9))), ["clients = 9", "n_clients = 8"]),
    "moments of no clients": (lambda: lf.Moments(clients=0), ["clients = 0", "integer of at least 1"]),
    "init of another shape": (lambda: run(fedrep(init=ones(6, 3))), ["init", "(6, 3)", "(d, k) = (6, 2)"]),
    "init of other trials": (lambda: run(fedrep(init=ones(2, 6, 2)), trials=3), ["trials = 3", "init", "2 trials"]),
    "init of no trials": (lambda: run(fedrep(init=ones(0, 6, 2))), ["init", "(0, 6, 2)"]),
    "init of one axis": (lambda: fedrep(init=ones(6)), ["init", "(6,)", "(d, k)", "(trials, d, k)"]),
    "NaN in init": (lambda: fedrep(init=spoiled(6, 2, at=[(4, 1)])), ["init", "1 value ", "(4, 1)"]),
    "init a number": (lambda: fedrep(init=3), ["init = 3", "(d, k)", "'moments'"]),
    # --- condition number and covariance ---
    "condition number below 1": (lambda: shared(condition_number=0.5), ["condition_number = 0.5", "from 1 to 1e+12"]),
    "condition number beyond rounding": (
        lambda: shared(condition_number=1e308),
        ["condition_number = 1e+308", "from 1 to 1e+12"],
    ),
    "condition number of too few clients": (
        lambda: shared(n_clients=1, condition_number=2.0),
        ["condition_number = 2", "n_clients >= rank", "1 < 2"],
    ),
    "condition number of rank 1": (lambda: shared(rank=1, condition_number=2.0), ["condition_number = 2", "rank = 1"]),
    "covariance 0": (lambda: lf.Gaussian(covariance=0.0), ["covariance = ", "positive"]),
    "covariance negative": (lambda: lf.Rademacher(covariance=[1.0, -1.0]), ["covariance = ", "positive"]),
    "covariance of many zeros": (lambda: lf.Gaussian(covariance=np.zeros(60)), ["covariance", "positive"]),
    "covariance NaN": (lambda: lf.Gaussian(covariance=[1.0, NAN]), ["covariance", "1 value ", "(1,)"]),
    "covariance not square": (lambda: lf.Gaussian(covariance=ones(2, 3)), ["covariance", "(2, 3)", "symmetric"]),
    "covariance not symmetric": (
        lambda: lf.Gaussian(covariance=[[1.0, 2.0], [0.0, 1.0]]),
        ["covariance", "(2, 2)", "symmetric"],
    ),
    "covariance indefinite": (
        lambda: lf.Gaussian(covariance=[[1.0, 2.0], [2.0, 1.0]]),
        ["covariance", "-1", "semi-definite"],
    ),
    "covariance 0 of a matrix": (lambda: lf.Gaussian(covariance=-np.eye(2)), ["covariance", "-1", "semi-definite"]),
    "covariance of four axes": (lambda: lf.Gaussian(covariance=ones(2, 2, 2, 2)), ["covariance", "(2, 2, 2, 2)"]),
    "covariances of other clients": (
        lambda: shared(n_clients=3, design=lf.Gaussian(covariance=[np.eye(6)] * 2)),
        ["covariance", "(2, 6, 6)", "n_clients = 3"],
    ),
    "covariance of another dimension": (
        lambda: shared(design=lf.Gaussian(covariance=ones(5))),
        ["covariance", "(5,)", "dim = 6"],
    ),
    # --- memory ---
    "data that would not fit": (
        lambda: run(
            lf.Oracle(rank=2), shared(n_clients=10**6, dim=10**4), data=lf.FixedSamples(100), engine="explicit"
        ),
        ["one trial needs about 8.02 TB", "memory_budget is", "n_samples", "participation"],
    ),
    "a state that would not fit": (
        lambda: run(lf.LocalOnly(), shared(n_clients=10**7, dim=10**4), participation=10),
        ["one trial needs about", "memory_budget is", "n_clients", "dim"],
    ),
    "results beyond memory": (
        lambda: run(trials=10**12),
        ["trials = 1000000000000", "TB", "half of the memory is", "fewer trials", "record_every"],
    ),
    "states beyond memory": (
        lambda: run(trials=10**11, metrics=[]),
        ["trials = 100000000000", "half of the memory is", "fewer trials"],
    ),
    "trials held at once beyond memory": (
        lambda: lf.iterate(fedrep(), PROBLEM, data=lf.FreshSamples(5), rounds=1, trials=10**9),
        ["trials = 1000000000 at once", "lf.simulate"],
    ),
    "drawn samples beyond memory": (
        lambda: lf.FixedSamples(10**7).draw(PROBLEM, trials=10**3),
        ["trials = 1000", "n = 8", "10000000 samples", "about 8.96 TB", "half of the memory is", "let simulate draw"],
    ),
    "population samples beyond memory": (
        lambda: lf.GivenSamples.population(PROBLEM, trials=10**9),
        ["trials = 1000000000", "TB", "half of the memory is", "fewer trials"],
    ),
    "new clients beyond memory": (
        lambda: run(rounds=0).new_clients([5], clients=10**10),
        ["10000000000 new clients", "TB", "half of the memory is", "clients="],
    ),
    "samples of new clients beyond memory": (
        lambda: run(rounds=0).new_clients([5, 10**10]),
        ["n_samples up to 10000000000", "TB", "half of the memory is"],
    ),
    "ascending singular values": (lambda: theory.flute_gap([1.0, 2.0], 1), ["spectrum = [1.0, 2.0]", "descending"]),
    "a negative round of a bound": (
        lambda: theory.fedrep_bound([3, -1], step_size=0.1, start=0.5, smallest=1.0),
        ["rounds = [3, -1]", "at least 0"],
    ),
    "a negative round of FLUTE's bound": (
        lambda: theory.flute_bound([2.0, 1.0], 1, 0.01, 4, [-1]),
        ["rounds = [-1]", "at least 0"],
    ),
    "a relative gradient of other clients": (
        lambda: theory.flute_relative_gradient(ones(3, 2), ones(4, 2), ones(1, 3, 3), ones(4, 3)),
        ["A has shape (1, 3, 3)", "(4, 3, 3)"],
    ),
    "a cycle of other clients": (
        lambda: theory.fedrolex_cycle(ones(4, 3, 3), ones(5, 3), step_size=0.1, model_share=0.5),
        ["A has shape (4, 3, 3)", "(5, 3, 3)"],
    ),
    "a cycle with a negative weight": (
        lambda: theory.fedrolex_cycle(ones(2, 3, 3), ones(2, 3), step_size=0.1, model_share=0.5, weights=[1, -1]),
        ["weights must not be negative"],
    ),
    "L2GD without local steps": (
        lambda: theory.l2gd_stationary_models(
            ones(2, 1, 1), ones(2, 1), step_size=0.1, strength=1.0, mean_probability=1.0
        ),
        ["mean_probability = 1 must be below 1"],
    ),
    "contractions of other trials": (
        lambda: theory.contracted_distance(ones(2, 5, 1), ones(2, 5, 1), ones(3, 1, 1), [1]),
        ["B, B_star and contraction", "2 and 3 trials"],
    ),
    "dependent columns of a representation": (
        lambda: theory.outside_length(ones(4, 2), ones(3, 4)),
        ["B of shape (4, 2)", "linearly independent", "rank 1"],
    ),
    "a spectral floor in few dimensions": (
        lambda: theory.spectral_floor(lf.UStatistic(rank=2), normal(9, 2), dim=3, n_samples=5, noise_std=0.1),
        ["dim = 3", "at least 4"],
    ),
    "heads of 0": (
        lambda: theory.second_order_evolution(0 * ones(9, 2), dim=9, n_samples=9, step_size=0.1, rounds=1, delta=0.5),
        ["W of shape (9, 2)", "must not be 0"],
    ),
    "noise on messages that overflows": (
        lambda: theory.near_truth_floor(
            normal(9, 2), dim=9, n_samples=9, step_size=0.1, noise_std=0.0, message_noise_std=1e100
        ),
        ["message_noise_std = 1e+100", "at most 1e+70"],
    ),
}
SIZES = ("beyond memory", "would not fit")
KINDS = {
    "unknown attribute": AttributeError,
    "unknown attribute, far from all": AttributeError,
    "an attribute in lower case": AttributeError,
    "an attribute in lower case altogether": AttributeError,
    "moments of too many dimensions": lf.SizeError,
    "moments of too many samples": lf.SizeError,
}


@each("name", CALLS)
def test_a_bad_call_says_what_is_wrong_in_one_line(name):
    sizes = lf.SizeError if name.endswith(SIZES) else (ValueError, TypeError)
    assert len(assert_one_line(*CALLS[name], errors=KINDS.get(name, sizes))) < 500


@each("kind", [*lf.ALGORITHMS.values(), lf.SharedRepresentation, lf.GivenTruth, lf.Gaussian])
def test_unknown_and_positional_fields_are_refused(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'step'"):
        kind(step=1)
    with pytest.raises(TypeError, match="positional"):
        kind(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lf.FedRep(k=2), "'k' (did you mean 'rank'?); allowed: rank, step_size, init, heads, "),
        (lambda: lf.FedRep(rank=2, lr=0.1), "'lr' (did you mean 'step_size'?); allowed: rank, "),
        (lambda: lf.FedAvg(eta=0.1), "'eta' (did you mean 'step_size'?); allowed: step_size, "),
        (lambda: lf.SharedRepresentation(n=9, dim=8, rank=2), "'n' (did you mean 'n_clients'?); allowed: n_clients, "),
        (lambda: lf.SharedRepresentation(d=9), "'d' (did you mean 'dim'?); allowed: n_clients, dim, "),
        (lambda: lf.FreshSamples(m=3), "'m' (did you mean 'n_samples'?); allowed: n_samples"),
        (lambda: lf.FedRep(rank=2, stepsize=0.1), "'stepsize' (did you mean 'step_size'?); allowed: rank, "),
        (lambda: lf.FedRep(rank=2, batch_size=5), "'batch_size'; allowed: rank, "),
        (lambda: lf.Ditto(penalty=0.1), "'penalty'; allowed: step_size, "),
        (lambda: lf.Oracle(k=2, eta=0.1), "'k' (did you mean 'rank'?); allowed: rank, ridge"),
        (lambda: lf.Oracle(rank=2, eta=0.1), "'eta'; allowed: rank, ridge"),  # it has no step size
    ],
)
def test_unknown_fields_are_answered_with_the_right_name(call, message):
    with pytest.raises(TypeError, match="got an unexpected keyword argument " + re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


MEANT = {
    "step_size": ["stepsize", "step_sizes", "Step-Size", "stpe_size", "step", "step_szie"],
    "n_clients": ["clients", "n_client", "nclients", "n_cleints"],
    "sphere": ["sfere", "spheer", "Sphere"],
    "FedRep": ["FedReb", "fedrep", "FEDREP", "Fed_Rep", "FedRpe"],
    "SCAFFOLD": ["scafold", "Scaffold", "SCAFOLDD"],
    "fedrep-fig3": ["fedrep_fig3", "fedrep-fg3", "ferdep-fig3"],
    "gamma2": ["gama2", "gamma_2"],
}
"""Names, and what is typed for them."""

OTHERS = {
    "step_size": ["batch_size", "size", "epochs", "head_step_size", "server_step_size"],
    "personal_steps": ["penalty", "local_steps"],
    "FedRep": ["FedPer", "FedVARP", "FedAdam", "FedProx", "FedRep2", "Fed2Rep"],
    "FedSCAVAR": ["FedAdam", "FedVARP"],
    "FedVARP": ["FedNova", "FedRep", "FedAMP"],
    "fedrep-fig3": ["fedrep-fig1", "fedrep-fig33", "flute-fig3"],
    "gamma2": ["gamma1"],
    "n_samples": ["n", "test_samples"],
    "B": ["S", "n", "", "_", "5"],
}
"""Names, and words that mean something else."""


@each("name", sorted({*MEANT, *OTHERS}))
def test_suggestions_are_for_mistyped_words_and_not_for_other_words(name):
    assert suggestion("", [name]) == suggestion("nothing", [name]) == ""
    for typed in MEANT.get(name, []):
        assert suggestion(typed, ["unrelated", name, "further"]) == f" (did you mean {name!r}?)", typed
    for typed in OTHERS.get(name, []):
        assert suggestion(typed, ["unrelated", name, "further"]) == "", typed


def test_the_nearest_name_is_suggested_and_the_first_of_equally_near_ones():
    assert suggestion("head", ["head_steps", "heads", "other"]) == " (did you mean 'heads'?)"
    assert suggestion("fedrep", ["fedrep-fig1", "fedrep-fig3"]) == " (did you mean 'fedrep-fig1'?)"
    assert (
        suggestion(5, ["n_clients"]) == suggestion(None, ["n_clients"]) == suggestion("x" * 10**6, ["n_clients"]) == ""
    )


def test_a_field_of_any_name_is_left_to_the_class():
    class Open(Configuration):
        def __init__(self, **options):
            self.options = options

    assert Open(k=2).options == {"k": 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lf.FedRep(2, 0.5), "FedRep takes no positional arguments, got 2: write FedRep(rank=2, step_size=0.5)"),
        (lambda: lf.FLUTE(2, step_size=0.1), "FLUTE takes no positional .* write FLUTE(rank=2, step_size=0.1)"),
        (lambda: lf.Gaussian(4.0), "Gaussian takes no positional .* write Gaussian(covariance=4.0)"),
        (lambda: lf.SharedRepresentation(9, 8, 2), "write SharedRepresentation(n_clients=9, dim=8, rank=2)"),
        (lambda: lf.Moments(3), "Moments takes no positional .* write Moments(clients=3)"),
        (lambda: lf.AtDistance(0.5, 2), "AtDistance takes at most 1 positional argument, got 2: its fields are delta"),
        (
            lambda: lf.FixedSamples(1, True, 3),
            "at most 2 positional arguments, got 3: its fields are n_samples, in_law",
        ),
        (lambda: lf.LocalOnly(*range(9)), "LocalOnly takes no positional arguments, got 9: its fields are ridge"),
    ],
)
def test_positional_arguments_are_named(call, message):
    with pytest.raises(TypeError, match=message.replace("(", r"\(").replace(")", r"\)")) as caught:
        call()
    assert "\n" not in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class OwnProblem:
    """Answers as another problem does, but for what it is told to leave out."""

    inner: object
    without: tuple = ()
    design: object = lf.Gaussian()

    def __getattr__(self, name):
        if name in self.without:
            raise AttributeError(name)
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (
            {"without": ("subspace_rank", "floats_per_trial")},
            "must have the attributes subspace_rank, floats_per_trial: see lf.Problem",
        ),
        ({"without": ("noise_std",)}, "must have the attributes noise_std: see lf.Problem"),
        ({"without": ("truth",)}, "must be a problem, e.g. lf.SharedRepresentation"),
        ({"design": "gaussian"}, "problem.design = 'gaussian' must be a distribution of x, e.g. lf.Gaussian"),
    ],
)
def test_what_a_problem_of_ones_own_lacks_is_named(without, message):
    with pytest.raises(TypeError, match=message) as caught:
        run(problem=OwnProblem(inner=PROBLEM, **without))
    assert "\n" not in str(caught.value)
    assert run(problem=OwnProblem(inner=PROBLEM), rounds=1).trials == 1


def test_a_class_with_an_init_of_its_own_takes_what_that_takes():
    class Own(lf.LocalOnly):
        def __init__(self, first, *rest):
            super().__init__(ridge=first)

    assert Own(0.5, 1, 2).ridge == 0.5
    assert copy.deepcopy(fedrep()) == fedrep()
    assert pickle.loads(pickle.dumps(fedrep())) == fedrep()


def test_only_public_names_are_listed():
    assert [name for name in dir(lf) if not name.startswith("__")] == lf.__all__
    assert "__version__" in dir(lf)
    assert {"Design", "Initial", "Problem", "Truth"} <= set(dir(lf))
    for name in lf.__all__:
        assert getattr(lf, name) is not None


def test_a_size_error_is_a_memory_error():
    assert issubclass(lf.SizeError, MemoryError)


def test_what_is_right_at_the_border_passes():
    """The other side of the checks above: the last value that is allowed."""
    result = run(fedrep(rank=6), shared(rank=6), participation=8, rounds=1)
    assert result.participants == 8
    assert run(participation=1e-9, rounds=0, trials=1, seed=(0,)).participants == 1
    assert lf.AtDistance(1).delta == 1.0
    assert run(fedrep(init=lf.Moments(clients=8)), rounds=1).trials == 1
    assert run(fedrep(init=lf.AtDistance(0.0)), shared(dim=4), rounds=0).metrics["subspace_distance"] < 1e-15
    assert shared(rank=1, condition_number=1).condition_number == 1.0


def test_numbers_of_other_kinds_are_numbers():
    """What is refused above is refused for what it is: integers, longer floats, fractions and objects of them pass."""
    X, wanted = np.arange(24).reshape(4, 3, 2), np.arange(24.0).reshape(4, 3, 2)
    for kind in (np.int8, np.uint64, np.float32, np.longdouble, object):
        assert np.array_equal(given(X=X.astype(kind)).X, wanted)
    assert np.array_equal(given(X=X.tolist()).X, wanted)
    assert np.array_equal(given(X=np.ma.masked_array(X).data).X, wanted)
    half = given(y=[[Fraction(1, 2), 10**30, np.float32(0.5)]] * 4)
    assert half.y[0].tolist() == [0.5, 1e30, 0.5]
    assert fedrep(step_size=Fraction(1, 2)).step_size == 0.5
    assert run(seed=10**400, rounds=0).seed == 10**400
    assert run(seed=(10**400, 1), rounds=0).seed == (10**400, 1)


RESULTS = {"simulate", "tune", "iterate", "sweep", "find_smallest", "reproduce", "Run"}
"""Public names whose results also hold run times, or that keep their arguments for `simulate`."""


def numbers_in(value):
    """Return the kind and the value of all numbers in a result, e.g. in the fields of a dataclass."""
    if isinstance(value, np.ndarray | np.generic):
        return [(value.dtype.str, np.asarray(value).tobytes())]
    if isinstance(value, list | tuple):
        return [one for part in value for one in numbers_in(part)]
    if isinstance(value, dict) or hasattr(value, "__dict__"):
        return numbers_in(list(value.values() if isinstance(value, dict) else vars(value).values()))
    return [(type(value), value)] if isinstance(value, int | float | Fraction) else []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_number_of_another_kind_gives_the_same_result():
    """An argument in half, single or extended precision or as a small integer is converted before it is used."""
    count, targets = 0, fuzz.targets()
    for name, (called, valid, named) in targets.items():
        defaults = {one.name: one.default for one in inspect.signature(called).parameters.values()}
        for argument in [] if name in RESULTS else named:
            value = valid.get(argument, defaults[argument])
            value = fuzz.VALID.get(argument) if value is None else value
            if type(value) is int and abs(value) < 100:
                kinds = [np.int8, np.uint64]
            elif type(value) is float and 1e-3 < abs(value) < 1e3:
                value, kinds = float(np.float16(value)), [np.float16, np.float32, np.longdouble, np.float64]
            else:
                continue
            try:
                wanted = numbers_in(called(**valid | {argument: value}))
            except (TypeError, ValueError):
                continue  # not allowed with the other arguments
            for kind in kinds:
                found = numbers_in(called(**valid | {argument: kind(value)}))
                assert found == wanted, f"{name}({argument}={kind.__name__}({value}))"
                count += 1
    assert count > 1000


def test_checks_of_numbers_are_not_only_called():
    """A check returns the number to compute with; a call whose result is thrown away leaves the number as given."""
    checks = ("number", "integer", "noise_std", "noise_stds", "weights", "numbers", "times", "square", "counts")
    found = []
    for path in sorted(Path(lf.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.value if isinstance(node, ast.Expr) else None
            if isinstance(called, ast.Call) and ast.unparse(called.func) in {f"check_{one}" for one in checks}:
                found.append(f"{path.name}:{called.lineno}")
    assert not found


LARGE = {
    "FedRep": lambda value: fedrep(step_size=value),
    "gradient heads": lambda value: fedrep(heads=lf.GradientHeads(step_size=value)),
    "unnormalised": lambda value: fedrep(step_size=value, orthonormalize=False),
    "ridge": lambda value: fedrep(heads=lf.ExactHeads(ridge=value)),
    "init": lambda value: fedrep(init=value * np.eye(6)[:, :2]),
    "FLUTE": lambda value: flute(step_size=value, gamma1=value, gamma2=value),
    "small random": lambda value: flute(init=lf.SmallRandom(value)),
    "FedAvg": lambda value: fedavg(step_size=value, server_step_size=value),
    "fine-tuning": lambda value: fedavg(rank=2, fine_tune=lf.GradientHeads(steps=10, step_size=value)),
    "FedPer": lambda value: fedper(step_size=value),
    "LG-FedAvg": lambda value: lf.LGFedAvg(rank=2, step_size=value),
    "FedRoD": lambda value: lf.FedRoD(rank=2, step_size=value),
    "FedRoD, ridge": lambda value: lf.FedRoD(rank=2, step_size=0.1, personal=lf.ExactHeads(ridge=value)),
    "shortcuts": lambda value: shortcut(step_size=value, solver=lf.GradientSteps(shortcut_step_size=value)),
    "shortcuts, closed form": lambda value: shortcut(solver=lf.ClosedForm(order="joint"), ridge=value),
    "local only": lambda value: lf.LocalOnly(ridge=value),
}


@each("value", [1e100, 1e200, 1e308])
@each("name", LARGE)
def test_large_steps_end_as_results(name, value):
    """Neither warnings nor errors: what was found is told by the status, and evaluated like any other run."""
    for data in (lf.FreshSamples(5), lf.FixedSamples(5), lf.FixedSamples(20)):
        result = run(LARGE[name](value), data=data)
        diverged = result.status[0] is lf.Status.DIVERGED
        assert np.isnan(result.client_risks()).all() == np.isnan(result.new_clients([3])).all() == diverged
        assert np.isnan(result.losses(ones(8, 3, 6), ones(8, 3))).all() == diverged
        assert all(np.isfinite(array).all() for array in result.final.arrays().values()) or name == "small random"


@pytest.mark.parametrize(
    "problem",
    [
        shared(head_norm=1e200),
        shared(noise_std=1e70),
        shared(condition_number=1e12),
        lf.SimilarRepresentations(n_clients=8, dim=6, rank=2, deviation=1e200, outliers=0.2),
        shared(design=lf.Gaussian(covariance=1e200)),
        shortcuts(shortcut_norm=1e200),
        lf.UnderParameterized(n_clients=8, dim=6, spectrum=[1e200, 1.0]),
        truth(Phi=np.full((8, 6), 1e200)),
    ],
)
def test_large_truths_end_as_results(problem):
    result = run(problem=problem, trials=2)
    assert result.metrics["risk"].shape == (2, 5)
    diverged = [status is lf.Status.DIVERGED for status in result.status]
    np.testing.assert_array_equal(np.isnan(result.metrics["risk"][:, -1]), diverged)
    np.testing.assert_array_equal(np.isnan(result.client_risks()).T, [diverged] * 8)
    assert result.summary()
    if not isinstance(problem, lf.GivenTruth):
        assert result.new_clients([3]).shape == (2, 1, 100)


def test_long_bases_have_a_distance():
    assert lf.subspace_distance(1e200 * np.eye(4)[:, :2], [[1.0], [0.0], [0.0], [1.0]]) == pytest.approx(0.5**0.5)


def test_given_participants_of_no_rounds_are_none():
    result = run(participation=np.zeros((0, 3), dtype=int), rounds=0)
    assert (result.participants, result.rounds.tolist()) == (3, [0])
