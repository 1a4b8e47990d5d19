"""Valid arguments of public names and of methods of public objects, and odd values for any argument."""

# ruff: noqa: E501, RUF024

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np

import linfed as lf

MASKED = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
READ_ONLY = np.ones((2, 2))
MATRIX = np.array([[1, 2]]).view(np.matrix)
READ_ONLY.flags.writeable = False

ODD: list[Any] = [
    *(None, True, False, "", "x", "nan", b"x", [], {}, (), set(), object(), object, 1j, np.nan, np.inf, -np.inf),
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
CELL = lf.Run(algorithm=FEDREP, problem=PROBLEM, data=DATA, n_rounds=2, trials=2)
RESULT = CELL.simulate()
STATE = RESULT.final

W = RNG.normal(size=(5, 2))
TRUTH = lf.GivenTruth(B=np.eye(6)[:, :2], W=W, noise_std=0.1).truth(0, [0])
SHORT = lf.SharedWithShortcuts(n_clients=5, dim=6, rank=2, shortcut_norm=1.0).truth(0, [0])
VALID: dict[str, Any] = {
    "rank": 2, "step_size": 0.1, "adaptation_step_size": 0.1, "penalty": 1.0, "mu": 0.1, "ridge": 0.1, "first_phase": 1,
    "n_clients": 5, "dim": 6, "n_samples": 8, "noise_std": 0.1, "shortcut_norm": 1.0, "n_classes": 3, "delta": 0.5,
    "classes_per_client": 2, "base": FEDREP, "clusters": 2, "spectrum": None, "X": X, "y": Y, "labels": LABELS,
    "B": np.eye(6)[:, :2], "W": W, "B1": np.eye(6)[:, :2], "B2": np.ones((6, 2)) - np.eye(6)[:, :2],
    "algorithm": FEDREP, "problem": PROBLEM, "data": DATA, "n_rounds": 2, "cells": [CELL], "level": 0.5, "metric": "risk",
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
SKIPPED = {"Origin", "Verdict", "Algorithm", "Initial", "Problem", "Design", "Requires", "Status", "State", "Truth", "Result", "TuningResult",
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
    **dict.fromkeys(("iterate", "predict"), {"problem": PROBLEM, "data": DATA, "n_rounds": 2, "seed": 0}),
    "CompressedFedRep": {"kept_share": 0.5}, "Finding": {"claimed_low": 0.1, "claimed_high": 3.0},
    "GivenTruth": {"B": VALID["B"], "W": W, "noise_std": 0.1, "S": np.zeros((5, 6))},
    **dict.fromkeys(("max_client_error", "max_inlier_error"), {"truth": SHORT, "state": lf.State(S=np.ones((1, 5, 6)))}),
    "shortcut_error": {"truth": SHORT, "state": lf.State(B=np.eye(6)[None, :, :2], W=W[None], S=np.ones((1, 5, 6)))},
    "theory.at_exact_heads": {"data": lf.GivenSamples(X, Y), "B": np.eye(6)[None, :, :2]},
    "theory.contracted_distance": {"B": np.eye(6)[:, :2], "B_star": np.eye(6)[:, :2], "contraction": np.eye(2) / 2, "rounds": [2]},
    "theory.flute_stability_edge": {"truth": lf.GivenTruth(B=np.eye(6)[:, :2], W=W).truth(0, [0])},
    **dict.fromkeys(("theory.flute_bound", "theory.flute_gap", "theory.flute_local_rate"), {"spectrum": [2.0, 1.0, 0.5]}),
    "theory.fixed_samples_needed": {"level": 0.1}, "theory.median_distance": {"X": np.eye(2), "dim": 9},
    "theory.mean_square_rate": {"algorithm": lf.FedAvg(step_size=0.1)}, "theory.shortcut_spectrum_hypothesis": {"truth": SHORT},
    **dict.fromkeys(("statistics.mean_interval", "statistics.median_interval", "statistics.quantile_interval"), {"values": [1.0, 2.0, 4.0]}),
    "statistics.clustered_share": {"hits": np.ones((4, 3), dtype=bool)},
    **dict.fromkeys(("statistics.judge_share", "statistics.judge_smaller"),
                    {"claim": "c", "setting": "s", "statistic": "t", "source": "p"}),
    "simulate": {"problem": PROBLEM, "metrics": ["risk"], "memory_budget": 1e9, "record_every": 1, "engine": "auto", "workers": 1},
    "synthetic_classes": {"n_clients": 5, "n_samples": 20, "dim": 6},
    "theory.shortcut_repulsion": {"B": np.eye(6)[None, :, :2]},
    "theory.flute_rate": {"spectrum": [2.0, 1.0, 0.5]}, "theory.flute_step_limit": {"spectrum": [2.0, 1.0, 0.5]},
    "theory.flute_start_bound": {"alpha": 0.01},
    "statistics.bootstrap_interval": {"statistic": np.mean, "samples": [np.arange(9.0)], "resamples": 99},
    "statistics.fit_exponent": {"x": [1.0, 2.0, 4.0], "values": [[1.0, 2.0, 4.1], [1.1, 2.0, 4.0]]},
    "statistics.first_round_below": {"n_rounds": np.arange(3), "values": np.ones((2, 3))},
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


HELD_OUT = lf.simulate(lf.LocalOnly(), data=lf.GivenSamples(X, Y, test=(X, Y)), n_rounds=1)
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
    return TUNED.tune(PROBLEM, data=DATA, n_rounds=2)


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
    "Result.adapt": (RESULT.adapt, {"X": X, "y": Y, "clients": None}),
    "Result.losses": (RESULT.losses, {"X": X, "y": Y, "clients": None}),
    "Result.losses of rows": (RESULT.losses, {"X": X[0], "y": Y[0], "clients": np.arange(8) % 5}),
    "Result.errors": (RESULT.errors, {"X": X, "y": Y, "clients": None}),
    "error_table": (lf.error_table, {"results": {"FedRep": HELD_OUT}}),
    "Result.predictions": (RESULT.predictions, {"X": X[0], "clients": np.arange(8) % 5}),
    "GivenSamples.from_table": (
        lf.GivenSamples.from_table,
        {
            "table": {"x": X[0, :, 0], "c": list("ababbaba"), "y": Y[0], "site": list("ssssrrrr")},
            **{"y": "y", "clients": "site", "categories": ["c"], "test_share": 0.5, "trials": 2, "seed": 0},
            **{"intercept": True, "scale": True},
        },
    ),
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
    "Algorithm.for_rounds": (FEDREP.for_rounds, {"n_rounds": 2}),
    "FixedSamples.draw": (lf.FixedSamples(8).draw, {"problem": PROBLEM, "trials": 2, "seed": 0}),
    "GivenSamples.hold_out": (GIVEN.hold_out, {"share": 0.3, "trials": 2, "seed": 0}),
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
        {"problem": PROBLEM, "n_rounds": 2, "data": DATA, "seed": 0, "participation": 1.0, "engine": "auto"},
    ),
    "TuningResult.columns": (lambda settings: tuning().columns(settings), {"settings": None}),
    "Level.shortfalls": (lf.below("risk", 0.5).shortfalls, {"values": [[1.0, 0.2]]}),
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
    "path": ["cannot be written", "has no field"],
    "stem": ["path", "cannot be written"],
    "table": ["formula", "y"],
    "rank": ["dim", "n_clients"],
    "dim": ["step_size"],
    **dict.fromkeys(("feature", "labels", "samples"), ["n_clients"]),
    "W": ["S", "outside"],
    "S": ["B"],
    "B": ["init"],
    "by": ["column", "order"],
    "clients": ["X"],  # decide whether X has one axis more
    "upper": ["n_samples"],  # a function of a cell
}
"""Words that name an argument as well as its name does."""


def words(name: str) -> list[str]:
    """Return the words that name an argument in a message."""
    return [name, *ALSO.get(name, [])]


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
