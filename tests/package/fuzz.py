"""Odd inputs from a seeded generator: ``python -m tests.package.fuzz --seed 0 --count 1500`` counts the outcomes by class.

Each input runs in a process of its own with limits of memory and time. An outcome is good if the call works, raises one
line that names the argument (a Python call), or ends with status 2 or 1 and one line (a command). All else is bad, and
listed.
"""

# ruff: noqa: E501, RUF024

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import linfed as lf
from linfed.cli import main as command
from tests.helpers import ROOT

SECONDS, BYTES = 5, 4 << 30
MASKED = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
READ_ONLY = np.ones((2, 2))
MATRIX = np.array([[1, 2]]).view(np.matrix)
READ_ONLY.flags.writeable = False

ODD: list[Any] = [
    *(None, True, False, "", "x", "nan", b"x", [], {}, (), set(), object(), object, len, 1j, np.nan, np.inf, -np.inf),
    *(0, -1, 1, 2, 3, 7, 10**6, 10**9, 2**63, 10**400, 0.0, -0.0, 1.5, -0.5, 1e-300, 1e-9, 1e150, 1e300),
    *(np.float32(0.5), np.int8(3), np.bool_(True), np.array(2), np.array(0.5), np.array([]), np.ones(3), np.eye(2)),
    *(np.zeros((6, 2)), np.eye(6)[:, :2], np.ones((6, 2)), np.ones((1, 1, 1, 1)), np.array([1, "a"], dtype=object)),
    *(np.array(["1", "2"]), np.array([1 + 1j]), np.array([np.nan, 1.0]), np.array(["2020"], dtype="M8[Y]"), MASKED),
    *(
        READ_ONLY,
        np.asfortranarray(np.ones((3, 2))),
        [[1, 2], [3]],
        [1, None],
        ["a", "b"],
        [np.nan],
        [0.5, 1.5],
        [0, 1],
    ),
    *((0.1, 0.2), (1, "a"), {"step_size": (0.1,)}, {"x": 1}, range(3), lambda: 0.1, lambda *given: 0.1),
    *(lambda *given: "a", lambda *given: None, lf.FreshSamples, "\n", "a\0b", "moments", "random", "oracle", "risk"),
    *(np.random.default_rng(0), np.broadcast_to(1.0, (10**6, 10**3, 10**3)), lf.FedRep, "subspace_distance", 0.25),
    *(Fraction(1, 2), Fraction(3), Decimal("0.5"), MATRIX, np.str_("m"), memoryview(b"ab"), slice(0, 1)),
    *("\ud800", "a" * 300, "m", "round", ("m", "m"), [["m"]], {"m"}, np.array(["m"]), [0, 0], [-1], [0, 9], 10**18),
]

PROBLEM = lf.SharedRepresentation(n_clients=5, dim=6, rank=2, noise_std=0.1)
FEDREP = lf.FedRep(rank=2, step_size=0.3, init="random")
DATA = lf.FreshSamples(8)
PROBLEMS = lf.SharedRepresentation | lf.GivenTruth | lf.UnderParameterized | lf.Classes
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(5, 8, 6)), RNG.normal(size=(5, 8))
LABELS = np.arange(40).reshape(5, 8) % 3
TABLE = lf.Table([{"m": m, "error": lf.LabeledArray([[m, 1.0]], round=[0, 1])} for m in (5, 10)])
CELL = lf.Run(algorithm=FEDREP, problem=PROBLEM, data=DATA, rounds=2, trials=2)
RESULT = CELL.simulate()
STATE = RESULT.final

W = RNG.normal(size=(5, 2))
TRUTH = lf.GivenTruth(B=np.eye(6)[:, :2], W=W, noise_std=0.1).truth(0, [0])
SHORT = lf.SharedWithShortcuts(n_clients=5, dim=6, rank=2, shortcut_norm=1.0).truth(0, [0])
VALID: dict[str, Any] = {
    "rank": 2, "step_size": 0.1, "adaptation_step_size": 0.1, "strength": 1.0, "mu": 0.1, "ridge": 0.1, "first_phase": 1,
    "n_clients": 5, "dim": 6, "n_samples": 8, "noise_std": 0.1, "shortcut_norm": 1.0, "n_classes": 3, "delta": 0.5,
    "classes_per_client": 2, "base": FEDREP, "clusters": 2, "spectrum": None, "X": X, "y": Y, "labels": LABELS,
    "B": np.eye(6)[:, :2], "W": W, "B1": np.eye(6)[:, :2], "B2": np.ones((6, 2)) - np.eye(6)[:, :2],
    "algorithm": FEDREP, "problem": PROBLEM, "data": DATA, "rounds": 2, "cells": [CELL], "level": 0.5, "metric": "risk",
    "rows": [{"x": 1.0}], "values": [[1.0, 2.0]], "concentration": 1.0, "feature": np.arange(20.0), "samples": 40,
    "alpha": 0.5, "beta": 0.5, "table": TABLE, "x": "m", "grid": {"step_size": (0.1, 0.3)}, "trials": 2, "seed": 0,
    "claim": "c", "setting": "s", "statistic": "t", "source": "p", "estimate": 1.0, "low": 0.5, "high": 2.0,
    "n": 5, "d": 6, "k": 2, "m": 8, "design": lf.Gaussian(), "result": RESULT, "low_rank": 2, "noise": 0.1, "gap": 1.0,
    "state": STATE, "truth": TRUTH, "participation": 1.0, "distance": 0.5, "participants": 5,
    "B_star": np.eye(6)[:, 1:3], "contraction": 0.5, "local_steps": 1, "start": 0.5, "smallest": 0.5, "condition": 1.0,
    "q": 0.5, "outside": np.ones(5), "length": np.ones(5), "epsilon": 1.0, "sensitivity": 1.0, "classes": 3,
    "squared_sine": 0.1, "baseline_risk": 1.0, "A": np.eye(6)[None] * np.ones((5, 1, 1)), "Phi": np.ones((5, 6)),
    "samples_list": None, "hits": [True, False, True], "claimed_low": 0.5, "count": 2, "total": 5, "threshold": 0.5,
    "first": np.arange(1.0, 9.0), "second": np.arange(2.0, 10.0), "place": "p", "words": "w", "estimator": lf.MethodOfMoments(rank=2),
}  # fmt: skip
LABELLED = {"classwise_split", "dirichlet_split"}
SKIPPED = {"Algorithm", "Initial", "Problem", "Design", "Requires", "Status", "State", "Truth", "Result", "TuningResult",
           "Summary", "SweepError", "style", "load_digits", "plot_runs", "panels", "save_figure", "plot_curves", "LabeledArray", "grid",
           "fit_power_law", "GeneralFLUTE", "plot_smallest"}  # fmt: skip
EXTRA: dict[str, dict[str, Any]] = {
    "UnderParameterized": {"rank": 2},
    "ClusterFedVARP": {"clusters": [0, 0, 1, 1, 1]},
    "FedSCAVAR": {"clusters": [0, 0, 1, 1, 1]},
    "classwise_split": {"labels": np.arange(60) % 3},
    "dirichlet_split": {"labels": np.arange(60) % 3},
    "find_smallest": {"path": "data.n_samples", "cells": CELL, "reaches": lf.below("subspace_distance", 0.5), "start": 8,
                      "upper": 16, "trials": 8},
    **dict.fromkeys(("iterate", "predict"), {"problem": PROBLEM, "data": DATA, "rounds": 2, "seed": 0}),
    "CompressedFedRep": {"kept_share": 0.5}, "Finding": {"claimed_low": 0.1, "claimed_high": 3.0},
    "GivenTruth": {"B": VALID["B"], "W": W, "noise_std": 0.1, "S": np.zeros((5, 6))},
    "shortcut_error": {"truth": SHORT, "state": lf.State(B=np.eye(6)[None, :, :2], W=W[None], S=np.ones((1, 5, 6)))},
    "theory.at_exact_heads": {"data": lf.GivenSamples(X, Y)}, "theory.contracted_distance": {"contraction": np.eye(2) / 2, "rounds": [2]},
    **dict.fromkeys(("theory.flute_bound", "theory.flute_gap", "theory.flute_local_rate"), {"spectrum": [2.0, 1.0, 0.5]}),
    "theory.fixed_samples_needed": {"level": 0.1}, "theory.median_distance": {"X": np.eye(2), "dim": 9},
    "theory.mean_square_rate": {"algorithm": lf.FedAvg(step_size=0.1)}, "theory.shortcut_spectrum_hypothesis": {"truth": SHORT},
    **dict.fromkeys(("statistics.mean_interval", "statistics.quantile_interval"), {"values": [1.0, 2.0, 4.0]}),
    "statistics.clustered_share": {"hits": np.ones((4, 3), dtype=bool)},
    **dict.fromkeys(("statistics.judge_share", "statistics.judge_smaller"),
                    {"claim": "c", "setting": "s", "statistic": "t", "source": "p"}),
    "simulate": {"problem": PROBLEM, "metrics": ["risk"], "memory_budget": 1e9, "record_every": 1, "engine": "auto", "workers": 1},
    "synthetic_classes": {"n_clients": 5, "n_samples": 20, "dim": 6},
    "theory.shortcut_repulsion": {"B": np.eye(6)[None, :, :2]},
    "theory.flute_rate": {"spectrum": [2.0, 1.0, 0.5]}, "theory.flute_step_limit": {"spectrum": [2.0, 1.0, 0.5]},
    "statistics.bootstrap_interval": {"statistic": np.mean, "samples": [np.arange(9.0)], "resamples": 99},
    "statistics.fit_exponent": {"x": [1.0, 2.0, 4.0], "values": [[1.0, 2.0, 4.1], [1.1, 2.0, 4.0]]},
    "statistics.first_round_below": {"rounds": np.arange(3), "values": np.ones((2, 3))},
    "fit_power_law": {"formula": "error ~ m"},
    **dict.fromkeys(("theory.state_evolution", "theory.gradient_heads_evolution", "theory.second_order_evolution",
                     "theory.unnormalized_evolution"), {"delta": 0.5, "W": W}),
    "Tuned": {"metric": "risk"}, "tune": {"metric": "risk", "problem": PROBLEM, "grid": VALID["grid"]},
}  # fmt: skip


def targets() -> dict[str, tuple[Callable[..., Any], dict[str, Any], list[str]]]:
    """Return each public callable with valid arguments and the names of all its arguments."""
    found = {}
    modules = {"": lf, "theory.": lf.theory, "statistics.": lf.statistics}
    for prefix, module in modules.items():
        for name in module.__all__:
            called = getattr(module, name)
            if not callable(called) or name in SKIPPED or (isinstance(called, type) and issubclass(called, Exception)):
                continue
            arguments = inspect.signature(called).parameters.values()
            named = [one.name for one in arguments if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
            needed = [one.name for one in arguments if one.default is one.empty and one.name in named]
            if set(needed) <= VALID.keys() | EXTRA.get(prefix + name, {}).keys():
                valid = {one: VALID[one] for one in needed if one in VALID} | EXTRA.get(prefix + name, {})
                found[prefix + name] = (called, valid, named)
    return found


GIVEN, CLASSES, TUNED = (
    lf.GivenSamples(X, Y),
    lf.GivenClasses(X, LABELS),
    lf.Tuned(base=FEDREP, grid=VALID["grid"], trials=2),
)
GIVEN_TRUTH = lf.GivenTruth(B=VALID["B"], W=W, noise_std=0.1)
PROBLEM_KINDS: dict[str, Any] = {
    "SharedRepresentation": PROBLEM,
    "SharedWithShortcuts": lf.SharedWithShortcuts(n_clients=5, dim=6, rank=2, shortcut_norm=1.0),
    "SimilarRepresentations": lf.SimilarRepresentations(n_clients=5, dim=6, rank=2, deviation=0.1),
    "UnderParameterized": lf.UnderParameterized(n_clients=5, dim=6, rank=2),
    "GivenTruth": GIVEN_TRUTH,
    "Classes": lf.Classes(n_clients=5, dim=6, n_classes=3, classes_per_client=2),
}


FLOOR = lf.theory.fixed_sample_floor(W, dim=6, n_samples=40, noise_std=0.1)


def sheet_of_panels() -> Any:
    """Return a figure with two panels."""
    with lf.panels(TABLE.assign(method=lambda row: "FedRep"), row="m") as sheet:
        return sheet


def drawn(method: str, **given: Any) -> Any:
    """Call a method of a figure with two panels."""
    return getattr(sheet_of_panels(), method)(**given)


def tuning() -> lf.TuningResult:
    """Return a small tuning."""
    return TUNED.tune(PROBLEM, data=DATA, rounds=2)


METHODS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Table.axes": (TABLE.axes, {"name": "error"}),
    "Table.unique": (TABLE.unique, {"name": "m"}),
    "Table.column": (lambda name: TABLE[name], {"name": "m"}),
    "Table.groupby": (lambda name: list(TABLE.groupby(name)), {"name": "m"}),
    "Table.select": (lambda m: TABLE.select(m=m), {"m": 5}),
    "Table.of": (lf.Table.of, {"cells": [CELL], "results": [{"x": 1.0}]}),
    "Table.summarize": (
        TABLE.summarize,
        {"metric": "error", "rows": "m", "columns": (), "statistic": "median", "best": "smallest"},
    ),
    "Table.to_records": (lambda along, short: TABLE.to_records(along, short=short), {"along": "round", "short": False}),
    "Table.to_csv": (TABLE.to_csv, {"path": "t.csv", "short": False}),
    "Table.save": (TABLE.save, {"path": "t.npz"}),
    "Table.load": (lf.Table.load, {"path": "t.npz"}),
    "LabeledArray": (
        lambda values, round: lf.LabeledArray(values, round=round),
        {"values": [[1.0, 2.0]], "round": [0, 1]},
    ),
    "Result.adapt": (RESULT.adapt, {"X": X, "y": Y}),
    "Result.losses": (RESULT.losses, {"X": X, "y": Y}),
    "Result.new_clients": (RESULT.new_clients, {"n_samples": [4], "clients": 5, "seed": 0, "problem": None}),
    "Result.per_client": (RESULT.per_client, {"metric": "risk"}),
    "Result.plot": (RESULT.plot, {"metric": "risk", "ax": None, "label": "a", "band": True}),
    "Result.save": (RESULT.save, {"path": "r.npz"}),
    "Result.load": (lf.Result.load, {"path": "r.npz"}),
    "State.array": (STATE.array, {"name": "B"}),
    "State.predictors": (STATE.predictors, {"clients": [0, 1]}),
    "State.take_clients": (STATE.take_clients, {"name": "W", "active": np.array([[0, 1], [2, 3]])}),
    "State.trials": (STATE.trials, {"chosen": slice(0, 1)}),
    "State.update": (STATE.update, {"active": np.array([[0, 1], [2, 3]]), "W": np.ones((2, 2, 2))}),
    "Truth.reference": (TRUTH.reference, {"rank": 2}),
    "Algorithm.communication": (FEDREP.communication, {"dim": 6, "classes": 0}),
    "Truth.truncated": (TRUTH.truncated, {"rank": 2}),
    "Truth.noise_levels": (TRUTH.noise_levels, {"clients": np.array([0])}),
    "Algorithm.for_rounds": (FEDREP.for_rounds, {"rounds": 2}),
    "FixedSamples.draw": (lf.FixedSamples(8).draw, {"problem": PROBLEM, "trials": 2, "seed": 0}),
    "GivenSamples.hold_out": (GIVEN.hold_out, {"share": 0.3, "seed": 0}),
    "GivenSamples.population": (lf.GivenSamples.population, {"problem": PROBLEM, "trials": 2, "seed": 0}),
    "GivenSamples.of_trials": (GIVEN.of_trials, {"trials": [0]}),
    "GivenSamples.split": (
        lf.GivenSamples.split,
        {"X": X.reshape(40, 6), "y": Y.ravel(), "clients": np.arange(40)[None] % 5, "test_share": 0.2, "seed": 0},
    ),
    "GivenClasses.hold_out": (CLASSES.hold_out, {"share": 0.3, "seed": 0}),
    "GivenClasses.of_trials": (CLASSES.of_trials, {"trials": [0]}),
    "GivenClasses.split": (
        lf.GivenClasses.split,
        {
            "X": X.reshape(40, 6),
            "labels": LABELS.ravel(),
            "clients": np.arange(40)[None] % 5,
            "n_classes": 3,
            "seed": 0,
        },
    ),
    **{f"{name}.truth": (one.truth, {"seed": 0, "trials": [0, 1]}) for name, one in PROBLEM_KINDS.items()},
    **{
        f"{name}.new_clients": (
            one.new_clients,
            {"truth": one.truth(0, [0, 1]), "clients": 3, "seed": 0, "trials": [0, 1]},
        )
        for name, one in PROBLEM_KINDS.items()
        if name not in ("Classes", "GivenTruth")  # they have no new clients
    },
    **{
        f"{name}.no_reference": (one.no_reference, {"rank": 2})
        for name, one in PROBLEM_KINDS.items()
        if name != "Classes"
    },
    "Tuned.tune": (
        TUNED.tune,
        {"problem": PROBLEM, "rounds": 2, "data": DATA, "seed": 0, "participation": 1.0, "engine": "auto"},
    ),
    "TuningResult.columns": (lambda settings: tuning().columns(settings), {"settings": None}),
    "Level.margins": (lf.below("risk", 0.5).margins, {"values": [[1.0, 0.2]]}),
    "Level.misses": (lf.below("risk", 0.5).misses, {"values": [[1.0, 0.2]]}),
    "Store.missing": (lambda cells: lf.Store("s").missing(cells), {"cells": [CELL]}),
    "Store.records": (lambda cells: lf.Store("s").records(cells), {"cells": [CELL]}),
    "Store.table": (
        lambda cells, incomplete: lf.Store("s").table(cells, incomplete=incomplete),
        {"cells": [CELL], "incomplete": True},
    ),
    "panels": (
        lf.panels,
        {"table": TABLE, "column": None, "row": "m", "title": "{}", "width": "page", "height": 2.0, "sharex": False},
    ),
    "Panels.curves": (
        lambda **given: drawn("curves", **given),
        {"x": "round", "y": "error", "by": "method", "order": ("FedRep",), "band": True, "labels": {}},
    ),
    "Panels.label": (lambda x: drawn("label", x=x), {"x": "t"}),
    "Panels.legend": (lambda **given: drawn("legend", **given), {"title": "t", "ncols": 2}),
    "Panels.row": (lambda number: list(sheet_of_panels().row(number)), {"number": 0}),
    "plot_curves": (
        lambda **given: lf.plot_curves(**{"ax": sheet_of_panels().axes[0, 0]} | given),
        {"table": TABLE.select(m=5), "x": "round", "y": "error", "by": "m", "at": None, "looks": {}, "predicted": None},
    ),
    "plot_runs": (
        lambda **given: lf.plot_runs(**{"table": lf.sweep([CELL])} | given),
        {"cells": [CELL], "metric": "risk", "width": None},
    ),
    "save_figure": (
        lambda **given: lf.save_figure(**{"figure": sheet_of_panels().figure} | given),
        {"stem": "figure", "metadata": None},
    ),
    "FixedSampleFloor.outside": (FLOOR.outside, {"W": W}),
    "grid": (lambda base, step_size: lf.grid(base, step_size=step_size), {"base": FEDREP, "step_size": (0.1, 0.2)}),
    "fit_power_law": (
        lf.fit_power_law,
        {"formula": "y ~ x^a", "table": {"x": [1.0, 2.0, 4.0], "y": [[1.0, 1.1], [2.0, 2.1], [4.1, 4.2]]}},
    ),
}
"""Methods of public objects, and functions that the calls leave out, with valid arguments."""

if find_spec("pandas"):
    METHODS["Table.to_pandas"] = (
        lambda along, short: TABLE.to_pandas(along, short=short),
        {"along": "round", "short": False},
    )
if find_spec("xarray"):
    METHODS["Table.to_xarray"] = (
        lambda index, short: TABLE.to_xarray(index, short=short),
        {"index": "m", "short": False},
    )


OF_COLUMNS = ("name", "metric", "predicted", "rows", "columns", "index", "by", "x", "y", "along")
ALSO = dict.fromkeys(OF_COLUMNS, ["column", "axes"]) | {
    "path": ["cannot be written"],
    "stem": ["path", "cannot be written"],
    "table": ["formula"],
    "rank": ["dim", "n_clients"],
    "by": ["column", "order"],
}
"""Words that name an argument as well as its name does."""


def words(name: str) -> list[str]:
    """Return the words that name an argument in a message."""
    return [name, *ALSO.get(name, [])]


def method_case(chance: random.Random) -> tuple[str, Callable[[], Any], list[str]]:
    """Return a call of a method with one odd argument."""
    name = chance.choice(sorted(METHODS))
    called, valid = METHODS[name]
    shown, call, names = with_odd(name, called, valid, [chance.choice(sorted(valid))], chance)
    return shown, call, words(names[0])


def with_odd(
    name: str, called: Callable[..., Any], valid: dict[str, Any], changed: list[str], chance: random.Random
) -> tuple[str, Callable[[], Any], list[str]]:
    """Return a call with odd values for some arguments, as text and as a function, and the names of these arguments."""
    odd = {one: chance.choice(ODD) for one in changed}
    shown = ", ".join(f"{one}={lf.checks.short_repr(value)}" for one, value in odd.items())
    return f"{name}({shown})", lambda: used(called(**(valid | odd))), changed


def used(value: Any) -> None:
    """Run a few rounds with what was constructed, because some arguments are judged by a run only."""
    short: dict[str, Any] = {"rounds": 2, "trials": 1}
    if isinstance(value, lf.Algorithm):
        lf.simulate(value, PROBLEM, data=DATA, **short)
    elif isinstance(value, PROBLEMS):
        small = getattr(value, "n_classes", None)
        algorithm = lf.FedAvg(step_size=0.1) if small is None else lf.FedAvg(step_size=0.1, rank=2)
        lf.simulate(algorithm, value, data=lf.FreshSamples(8), **short)
    elif isinstance(value, lf.FreshSamples | lf.FixedSamples):
        lf.simulate(FEDREP, PROBLEM, data=value, **short)
    elif isinstance(value, lf.GivenSamples):
        lf.simulate(lf.FedAvg(step_size=0.1), data=value, rounds=2)
    elif isinstance(value, lf.GivenClasses):
        lf.simulate(lf.FedAvg(step_size=0.1, rank=2), data=value, rounds=2)
    elif isinstance(value, lf.Initial):
        lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=value), PROBLEM, data=DATA, **short)
    elif isinstance(value, lf.Design):
        lf.simulate(FEDREP, lf.SharedRepresentation(n_clients=5, dim=6, rank=2, design=value), data=DATA, **short)


def call_case(chance: random.Random, known: Any) -> tuple[str, Callable[[], Any], list[str]]:
    """Return a call of a public name with one or two odd arguments."""
    name = chance.choice(sorted(known))
    called, valid, named = known[name]
    changed = chance.sample(named, min(len(named), 1 if chance.random() < 0.8 else 2))
    shown, call, names = with_odd(name, called, valid, changed, chance)
    return shown, call, [word for one in names for word in words(one)]


def given_case(chance: random.Random) -> tuple[str, Callable[[], Any], list[str]]:
    """Return given data with one odd array."""
    kind = chance.choice([lf.GivenSamples, lf.GivenClasses])
    labels = Y if kind is lf.GivenSamples else LABELS
    arrays: list[Any] = [X.copy(), labels.copy(), X.copy(), labels.copy()]
    place = chance.randrange(4)
    array = arrays[place]
    changes: dict[str, Callable[[], Any]] = {
        "a value": lambda: put(array, chance.choice([np.nan, np.inf, -1, 0, 1e300, 2.5, 10**6, -np.inf])),
        "a constant": lambda: np.full_like(array, chance.choice([0, 1, -1, 2])),
        "fewer axes": lambda: array[0],
        "more axes": lambda: array[..., None],
        "no clients": lambda: array[:0],
        "no samples": lambda: array[:, :0],
        "one sample": lambda: array[:, :1],
        "fewer clients": lambda: array[:2],
        "a list": lambda: [array[client, : chance.randint(0, 8)] for client in range(5)],
        "a list of lists": lambda: array.tolist(),
        "a dtype": lambda: array.astype(chance.choice(["f2", "f4", "i1", "u8", "c16", "O", "U5", "?", "g", "M8[s]"])),
        "masked": lambda: np.ma.masked_array(array, mask=array > 0),
        "reversed": lambda: array[::-1, ::-1],
        "Fortran": lambda: np.asfortranarray(array),
        "scaled": lambda: array * chance.choice([1e160, 1e-160, 1e300, 1e-320]),
        "a matrix": lambda: np.matrix(array[0]),
        "broadcast": lambda: np.broadcast_to(array, (10**9, *array.shape)),
        "odd": lambda: chance.choice(ODD),
    }
    change = chance.choice(sorted(changes))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        arrays[place] = changes[change]()
    test = {} if place < 2 else {"test": tuple(arrays[2:])}
    names = ["X", "y", "labels", "test", "client", "sample", "class"]
    where = ["X", "labels", "test X", "test labels"][place]
    return f"{kind.__name__}: {where} {change}", lambda: used(kind(arrays[0], arrays[1], **test)), names


def put(array: Any, value: float) -> Any:
    """Return an array with another last value."""
    array = array.astype(float)
    array.flat[-1] = value
    return array


def odd_json(chance: random.Random, value: Any) -> Any:
    """Return a JSON value with one part replaced, left out or nested."""
    if value and isinstance(value, dict | list) and chance.random() < 0.85:
        key = chance.choice(sorted(value)) if isinstance(value, dict) else chance.randrange(len(value))
        value = value.copy()
        if chance.random() < 0.15:
            del value[key]
        else:
            value[key] = odd_json(chance, value[key])
        return value
    wrong = [None, 5, -1, 1e308, "", "<script>", "../x", [], [5], {}, {"": None}, True, "a\nb", "\ud800", 10**30]
    contradictory = [" ", "\u2028", "nan", "inf", "-inf", 0.5, "HOLDS"]  # for a claim
    return chance.choice([*wrong, *contradictory, float("nan"), "x" * 10**5, "DEEP"])


def odd_text(chance: random.Random, value: Any) -> str:
    """Return odd JSON as text; one odd part is nested 100,000 deep."""
    return json.dumps(odd_json(chance, value)).replace('"DEEP"', "[" * 10**5 + "]" * 10**5)


def odd_bytes(chance: random.Random, data: bytes) -> bytes:
    """Return bytes that are cut, changed, repeated or foreign."""
    way, place = chance.randrange(6), chance.randrange(max(len(data), 1))
    if way == 0:
        return data[:place]
    if way == 1:
        return data[:place] + bytes([chance.randrange(256)]) * chance.randint(1, 20) + data[place + 20 :]
    if way == 2:
        return data + data
    if way == 3:
        return chance.randbytes(200)
    if way == 4:
        return b""
    return data[:place] + data[place + chance.randint(1, 50) :]


def record() -> dict[str, Any]:
    """Return the record of a committed run with few claims."""
    folder = ROOT / "results" / "committed"
    path = min(folder.glob("*.json"), key=lambda one: (one.stat().st_size, one.name))
    return dict(json.loads(path.read_text(encoding="utf-8")))


def record_case(chance: random.Random) -> tuple[str, list[str]]:
    """Write an odd record into the working folder, and return a command that reads it."""
    described = record()
    name = described["experiment"]
    path = Path(f"{name}.json")
    if chance.random() < 0.7:
        path.write_text(odd_text(chance, described), encoding="utf-8")
    else:
        path.write_bytes(odd_bytes(chance, json.dumps(described).encode()))
    Path("good").mkdir()
    Path("good", f"{name}.json").write_text(json.dumps(described), encoding="utf-8")
    commands = [["report", "."], ["report", str(path)], ["compare", ".", "good"], ["compare", "good", str(path)]]
    commands += [["show", name, "--out", "."], ["show", name, "--out", ".", "--verbose"], ["list", "--out", "."]]
    commands += [["report", "good", "--baseline", "."], ["replot", name, "--out", "."]]
    return "record", chance.choice(commands)


def archive_case(chance: random.Random) -> tuple[str, Callable[[], Any]]:
    """Return the loading of an odd archive of a result or a table, or of an odd store."""
    kind = chance.choice(["Result", "Table", "Store"])
    if kind == "Store":
        lf.sweep([CELL], store="store")
        file = next(Path("store").glob("*.cell"))
        way = chance.choice(["bytes", "folder", "link", "fifo", "rights"])
        data = file.read_bytes()
        file.unlink()
        if way == "bytes":
            file.write_bytes(odd_bytes(chance, data))
        elif way == "folder":
            file.mkdir()
        elif way == "link":
            file.symlink_to(file)
        elif way == "fifo":
            os.mkfifo(file)
        else:
            file.write_bytes(data)
            file.chmod(0)
        return f"Store: {way}", lambda: lf.sweep([CELL], store="store")
    saved, loaded = (RESULT, lf.Result.load) if kind == "Result" else (TABLE, lf.Table.load)
    saved.save("good.npz")
    data = Path("good.npz").read_bytes()
    way = chance.choice(["bytes", "member", "header", "JSON", "bomb", "left out", "more", "object", "fifo"])
    with zipfile.ZipFile("good.npz") as file:
        members = {name: file.read(name) for name in file.namelist()}
    one = chance.choice(sorted(members))
    if way == "bytes":
        Path("odd.npz").write_bytes(odd_bytes(chance, data))
        return f"{kind}: bytes", lambda: loaded("odd.npz")
    if way == "fifo":
        os.mkfifo("odd.npz")
        return f"{kind}: fifo", lambda: loaded("odd.npz")
    if way == "member":
        members[one] = odd_bytes(chance, members[one])
    elif way == "header":
        shape, number = (
            chance.choice([(10**12,), (2**62, 4), (-1,), (0,), ()]),
            chance.choice(["<f8", "<c16", "<U9", "|b1"]),
        )
        header = repr({"descr": number, "fortran_order": False, "shape": shape}).encode()
        members[one] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    elif way == "left out":
        del members[one]
    elif way == "more":
        members["another.npy"] = members[one]
    elif way == "object":
        buffer = io.BytesIO()
        np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
        members[one] = buffer.getvalue()
    elif way == "bomb":
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(4 * 10**6))
        members[one] = buffer.getvalue()
    else:
        described = next(
            (name for name in sorted(members) if members[name][:6] == b"\x93NUMPY" and b"<U" in members[name][:80]), one
        )
        text = str(np.load(io.BytesIO(members[described])))
        try:
            text = odd_text(chance, json.loads(text))
        except ValueError:
            text = "{"
        buffer = io.BytesIO()
        np.save(buffer, np.array(text.encode("utf-8", "replace").decode()))
        members[described] = buffer.getvalue()
    with zipfile.ZipFile("odd.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return f"{kind}: {way}", lambda: loaded("odd.npz")


WORDS = [
    *("list", "show", "compare", "report", "replot", "reproduce", "liste", "--help", "--version", "--cite", "-h", "--"),
    *(
        "",
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/full",
        "/nonexistent/x",
        "all",
        "estimators",
        "fedrep_fig1",
        "a\nb",
        "\x1b[1m",
    ),
    *("--quick", "--out", "--out=", "--experiments", "--trials", "--seed", "--set", "--workers", "--shard", "--rtol"),
    *(
        "--baseline",
        "--strict",
        "--verbose",
        "--dask",
        "0",
        "-1",
        "nan",
        "1e999",
        "1/0",
        "0/2",
        "2/1",
        "x=1",
        "rank=",
        "=1",
    ),
    *("\ud800", "9" * 5000, "x" * 5000, "file", "folder", "odd.py", "fifo", "unreadable", "link", "own", "own.py"),
]


def command_case(chance: random.Random) -> tuple[str, list[str]]:
    """Return odd words of a command line in a folder with odd files."""
    Path("file").write_text("{}")
    Path("folder").mkdir()
    Path("odd.py").write_text(chance.choice(["def", "1 / 0", "cells = 5", "def cells(quick): return 5", "import nope"]))
    Path("own.py").write_text("def cells(quick):\n    return []\n")
    os.mkfifo("fifo")
    Path("unreadable").mkdir(mode=0)
    Path("link").symlink_to("link")
    first = chance.choice(["list", "show", "compare", "report", "replot", "reproduce", chance.choice(WORDS)])
    words = [first, *chance.choices(WORDS, k=chance.randint(0, 4))]
    # No real experiment is computed: those names are for commands that read.
    if first == "reproduce":
        words = [word for word in words if word not in ("all", "estimators", "fedrep_fig1")]
    return "command", words


STREAMS = ["", "", "", "1 closed", "2 closed", "0 closed", "1 full", "2 full", "folder removed"]


LONG = ("BAD: hang", "BAD: killed or above the processor time")
MUCH = re.compile(
    r"(trials|rounds|steps?|iterations|epochs|resamples|max_pending|budget|batch|clients|classes|samples|dim)=\d{6}"
)


def limits() -> None:
    """Limit the memory and the processor time of this process."""
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    more_time()


def more_time() -> None:
    """Limit the further processor time of this process, and its time by the clock."""
    import resource  # not on Windows

    used = int(time.process_time()) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (used + 1, resource.RLIM_INFINITY))
    signal.alarm(6 * SECONDS)


def called(call: Callable[[], Any], names: list[str]) -> tuple[str, str]:
    """Return the class and the text of a call's outcome."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except (ValueError, TypeError, KeyError, OSError, lf.SizeError, lf.SweepError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # of the system, which names the file
            return "one line", f"{type(error).__name__}: {error}"
        text = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        ours = [
            frame
            for frame in frames
            if "linfed" in Path(frame.filename).parts or f"{os.sep}linfed{os.sep}" in frame.filename
        ]
        last = frames[-1]
        place = f" [{Path(last.filename).name}:{last.lineno}]"
        raised = last in ours or last.filename == __file__ or "unexpected keyword" in text
        if "\n" in str(error) or not str(error):
            return "BAD: several lines", text + place
        if not raised or (
            last in ours and "raise" not in (last.line or "") and "super().__init__" not in (last.line or "")
        ):
            return "BAD: not of our own", text + place
        if names and not any(re.search(rf"\b{name}|\b{name.replace('_', ' ')}", str(error)) for name in names):
            return "BAD: names no argument", text + place
        return "one line", text
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "BAD: " + type(error).__name__, f"{error} [{Path(last.filename).name}:{last.lineno}]"
    return "works", ""


def commanded(words: list[str], streams: str) -> tuple[str, str]:
    """Return the class and the text of a command's outcome; this process ends afterwards."""
    for number in (1, 2):
        os.dup2(os.open(f"../stream{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), errors="surrogateescape")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True)
    if streams == "folder removed":
        shutil.rmtree(os.getcwd())
    elif streams.endswith("full"):
        os.dup2(os.open("/dev/full", os.O_WRONLY), int(streams[0]))
    elif streams:
        os.close(int(streams[0]))
        setattr(sys, ["stdin", "stdout", "stderr"][int(streams[0])], None)
    sys.argv = ["linfed", *words]
    try:
        status: Any = command()
    except SystemExit as stop:
        status = stop.code
    except OSError as error:
        if streams == "2 full" and error.errno == 28:
            return "works", "the standard error is full"
        return "BAD: traceback", f"{type(error).__name__}: {error}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "BAD: traceback", f"{type(error).__name__}: {error} [{Path(last.filename).name}:{last.lineno}]"
    told = (
        Path("/proc/self/fd/2").read_text(errors="replace")
        if not streams.startswith("2") and streams != "folder removed"
        else "?"
    )
    lines = told.strip("\n").split("\n")
    if status == 0:
        return "works", ""
    if status in (1, 2) and (len(lines) == 1 and "Traceback" not in told):
        return f"one line, status {status}", lines[0]
    return "BAD: status or lines", f"status {status}: {told[-400:]!r}"


def outcome(case: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """Return the class and the text of an outcome, from a process with limits."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        limits()
        try:
            text = json.dumps([each[:900] for each in case()])
        except BaseException as error:
            text = json.dumps(("BAD: generator", repr(error)))
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    end = time.monotonic() + 3 * SECONDS
    text = b""
    while time.monotonic() < end:
        finished, _ = os.waitpid(child, os.WNOHANG)
        if finished:
            with open(reader, "rb") as pipe:
                text = pipe.read()
            break
        time.sleep(0.001)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        return "BAD: hang", ""
    if not text:
        return "BAD: killed or above the processor time", ""
    kind, told = json.loads(text)
    return kind, told


def outcomes(cases: list[Callable[[], tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return the outcomes of many cases, from one process with limits, and from another after each that ends it."""
    found: list[tuple[str, str]] = []
    while len(found) < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            limits()
            for case in cases[len(found) :]:
                more_time()
                try:
                    text = json.dumps([each[:900] for each in case()])
                except BaseException as error:
                    text = json.dumps(("BAD: generator", repr(error)))
                os.write(writer, f"{text}\n".encode())
            os._exit(0)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            found += [tuple(json.loads(line)) for line in pipe]
        os.waitpid(child, 0)
        if len(found) < len(cases):
            found.append(("BAD: killed or above the processor time", ""))
    return found


def one(seed: int, number: int, known: Any) -> tuple[str, str, str, str]:
    """Return family, input, class and text of one generated input."""
    chance = random.Random(f"{seed} {number}")
    family = chance.choices(["call", "method", "given", "archive", "record", "command"], [5, 4, 1, 1, 2, 2])[0]
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "here")
        place.mkdir()
        os.chdir(place)
        try:
            if family in ("call", "method", "given"):
                made = {
                    "call": lambda: call_case(chance, known),
                    "method": lambda: method_case(chance),
                    "given": lambda: given_case(chance),
                }
                shown, call, names = made[family]()
                kind, told = outcome(lambda: called(call, names))
                if kind in LONG and MUCH.search(shown):
                    kind = "much work was asked for"
            elif family == "archive":
                shown, call = archive_case(chance)
                kind, told = outcome(lambda: called(call, []))
            else:
                shown, words = record_case(chance) if family == "record" else command_case(chance)
                streams = chance.choice(STREAMS)
                shown = f"{shown}: {' '.join(words)[:200]!r} {streams}"
                kind, told = outcome(lambda: commanded(words, streams))
        finally:
            os.chdir(before)
    return family, shown, kind, told


def main() -> int:
    """Run the inputs, list the bad outcomes and print the counts; return whether there are bad ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--start", type=int, default=0)
    given = parser.parse_args()
    known = targets()
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(given.start, given.start + given.count):
        family, shown, kind, told = one(given.seed, number, known)
        counts[family, kind] += 1
        if kind.startswith("BAD"):
            print(f"{number}: {family} {shown}\n    {kind}: {told}", flush=True)
    for (family, kind), count in sorted(counts.items()):
        print(f"{family:8} {kind:45} {count}")
    return int(any(kind.startswith("BAD") for _, kind in counts))


if __name__ == "__main__":
    sys.exit(main())
