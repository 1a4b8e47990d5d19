"""Reference pages of the site: one page per public name, by topic, the command line and the benchmarks.

`GROUPS` must contain every name of `linfed`, `linfed.claims`, `linfed.statistics` and `linfed.theory` once;
`tests/docs/test_reference.py` checks this.
"""

from __future__ import annotations

import argparse
import inspect
import json
import operator
import os
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import linfed as lf
import linfed.algorithms.initial
import linfed.prediction
import linfed.problems
import linfed.simulation.engines
import linfed.simulation.fitted
import linfed.simulation.loop
from docs.tools.formulas import escaped
from docs.tools.gallery import changed
from docs.tools.paths import COMMITTED
from docs.tools.usage import usage
from linfed.report.markdown import table
from linfed.simulation.metrics import Metric


class Group(NamedTuple):
    """Page of the reference: its title, a one-line summary and its names."""

    title: str
    about: str
    names: tuple[str, ...]


ELSEWHERE = {*lf.__all__, *lf.statistics.__all__} - {"above", "below"}
OF_CLAIMS = [
    name
    for name, value in sorted(vars(lf.claims).items())
    if name in {*lf.claims.__all__} - ELSEWHERE and not isinstance(value, types.GenericAlias)
]
"""Names of `linfed.claims` without types, and without those of `linfed` and `linfed.statistics` that it also has."""

GROUPS = {
    "running": Group(
        "Running",
        "Functions that run an algorithm on all trials and clients, and their results.",
        (
            "simulate",
            "iterate",
            "simulation.loop.Round",
            "Result",
            "simulation.fitted.FittedClients",
            "error_table",
            "Status",
            "METRICS",
            "simulation.engines.ENGINES",
            "shortcut_error",
            "max_client_error",
            "max_inlier_error",
            "subspace_distance",
        ),
    ),
    "problems": Group(
        "Problem classes",
        "Ground truths: regressors, noise and the distribution of the samples.",
        (
            *("SharedRepresentation", "SimilarRepresentations", "UnderParameterized", "SharedWithShortcuts"),
            *("GivenTruth", "Problem", "Truth"),
            *("Classes", "problems.ClassTruth"),
            *("Gaussian", "Rademacher", "UniformCube", "UniformSphere", "Design"),
        ),
    ),
    "data": Group(
        "Data",
        "The samples of each client.",
        (
            *("FreshSamples", "FixedSamples", "GivenSamples", "GivenClasses", "classwise_split", "dirichlet_split"),
            *("random_split", "feature_split"),
            *("load_digits", "synthetic_classes"),
        ),
    ),
    "algorithms": Group(
        "Algorithm classes",
        "Algorithms, and the base class for your own. `lf.ALGORITHMS` maps names to classes.",
        (
            *(
                "FedRep",
                "FLUTE",
                "GeneralFLUTE",
                "FedRepShortcut",
                "FedAvg",
                "FedPer",
                "LocalOnly",
                "Personalized",
                "Oracle",
            ),
            *("LGFedAvg", "FedRoD", "FedBABU", "Ditto", "APFL", "PFedMe", "L2GD", "PerFedAvg", "FedMTL", "ARMUL"),
            *("AltGDmin", "AltMin", "TPGD", "ANIL", "MAML", "PrivateFedRep", "CompressedFedRep"),
            *(
                "MethodOfMoments",
                "UStatistic",
                "TwoReplica",
                "LocalGram",
                "LocalSpectral",
                "NuclearNorm",
                "BurerMonteiro",
            ),
            *("FedProx", "SCAFFOLD", "FedVARP", "ClusterFedVARP", "FedRolex", "FedSCAVAR"),
            *("PooledLeastSquares", "ExactHeads", "GradientHeads", "AllLayers", "ClosedForm", "GradientSteps"),
            "ALGORITHMS",
            *("Algorithm", "State", "Requires"),
        ),
    ),
    "initialisations": Group(
        "Initialisations",
        "Initial values of B, and of B with the heads.",
        (
            *(
                "Moments",
                "TruncatedAverages",
                "RandomSubspace",
                "AtDistance",
                "GivenSubspace",
                "TrueSubspace",
                "Initial",
            ),
            *("SmallRandom", "GivenFactors", "algorithms.initial.InitialFactors"),
        ),
    ),
    "studies": Group(
        "Studies",
        "Grids of runs, and tables and figures of their results.",
        (
            *(
                "Run",
                "grid",
                "choice",
                "sweep",
                "run_parts",
                "Store",
                "Table",
                "LabeledArray",
                "style",
                "panels",
                "plot_curves",
                "plot_runs",
                "plot_smallest",
                "save_figure",
                "tune",
                "Tuned",
                "TuningResult",
            ),
            *("RoundsTo", "Summary"),
        ),
    ),
    "claims": Group(
        "Claims",
        "Claims that an experiment declares, and the words for their statistics, ranges and rows.",
        (
            *(f"claims.{name}" for name in OF_CLAIMS),
            *("statistics.cite", "statistics.reading", "statistics.OWN_PREDICTION", "statistics.OWN_THRESHOLD"),
            *("statistics.OWN_CONJECTURE", "statistics.Source", "statistics.Origin"),
        ),
    ),
    "statistics": Group(
        "Intervals and judges",
        "Confidence intervals over trials, and claims judged by them.",
        (
            *("Finding", "statistics.Verdict", "statistics.Hypothesis"),
            *("statistics.judge", "statistics.judge_smaller", "statistics.judge_share", "statistics.judge_failures"),
            *("statistics.judge_identity", "statistics.judge_exponent", "statistics.judge_predicted_exponent"),
            *("statistics.judge_farthest_off", "statistics.judge_one_constant"),
            *("statistics.median_interval", "statistics.mean_interval", "statistics.quantile_interval"),
            *("statistics.median_ratio", "statistics.bootstrap_interval", "statistics.binomial_share"),
            *("statistics.clustered_share", "statistics.share_smaller", "statistics.probability_smaller"),
            *("statistics.first_round_below", "statistics.fit_exponent", "statistics.PowerLawFit"),
        ),
    ),
    "sizes": Group(
        "Predictions and smallest sizes",
        "Predictions of runs, and the samples, clients or rounds that a run needs.",
        ("predict", "prediction.Prediction", "prediction.Quantity", "find_smallest", "above", "below", "fit_power_law"),
    ),
    "errors": Group(
        "Errors and warnings",
        "Errors and warnings of the package. Invalid arguments raise ValueError or TypeError.",
        (
            "EngineError",
            "NoPredictionError",
            "SizeError",
            "SweepError",
            "DivergenceWarning",
            "GridEdgeWarning",
            "StoreWarning",
            "ValidationWarning",
        ),
    ),
    "theory-fedrep": Group(
        "Theory of FedRep",
        "State evolution, floors, stability edges, step-size schedules and Theorem 1.",
        (
            *("theory.state_evolution", "theory.StateEvolution", "theory.one_round_means"),
            *(
                "theory.second_order_evolution",
                "theory.second_order_floor",
                "theory.SecondOrder",
                "theory.median_distance",
            ),
            *("theory.noise_floor", "theory.one_round_factor", "theory.best_step_size", "theory.near_truth_threshold"),
            *(
                "theory.near_truth_factor",
                "theory.near_truth_floor",
                "theory.near_truth_best_step",
                "theory.stability_edge",
            ),
            "theory.optimal_weights",
            *("theory.best_step_schedule", "theory.mean_squared_sine", "theory.largest_sine"),
            *("theory.schedule_asymptote", "theory.known_heads_bound", "theory.refitted_heads_limit"),
            "theory.gaussian_mechanism_noise",
            *("theory.gradient_heads_evolution", "theory.GradientHeadsEvolution"),
            *("theory.unnormalized_evolution", "theory.UnnormalizedEvolution", "theory.norm_growth"),
            *("theory.under_parameterized_evolution", "theory.UnderParameterizedEvolution"),
            *("theory.under_parameterized_floor", "theory.UnderParameterizedFloor"),
            *("theory.fixed_sample_floor", "theory.FixedSampleFloor", "theory.fixed_sample_edge"),
            *("theory.similar_floor", "theory.SimilarFloor"),
            *("theory.mean_gradient", "theory.near_truth_drift", "theory.NearTruthDrift"),
            *("theory.spectral_floor", "theory.SpectralFloor"),
            *("theory.fixed_samples_needed", "theory.fedrep_bound_rounds"),
            *("theory.break_even_clients", "theory.fedrep_bound", "theory.fedrep_step_limit"),
            *("theory.fedrep_least_samples", "theory.fedrep_predicted_samples"),
            *("theory.theorem1_run", "theory.Theorem1Run", "theory.at_exact_heads", "theory.AtExactHeads"),
        ),
    ),
    "theory-flute": Group(
        "Theory of FLUTE",
        "Theorem 5.5, rates, floors and the threshold of divergence.",
        (
            *("theory.flute_trace", "theory.FluteTrace", "theory.ThetaCoordinates", "theory.flute_bound"),
            *("theory.flute_step_limit", "theory.flute_rate", "theory.flute_local_rate", "theory.flute_gap"),
            *("theory.flute_divergence_threshold", "theory.flute_worst_ray", "theory.flute_population_minimizer"),
            *("theory.flute_relative_gradient", "theory.truncation_error", "theory.truncation_floor"),
            *("theory.flute_stability_edge", "theory.average_direction_distance", "theory.flute_start_bound"),
        ),
    ),
    "theory-shortcut": Group(
        "Theory of the shortcut draft",
        "The draft's identities and bound, and the limit of B.",
        (
            *("theory.shortcut_trace", "theory.ShortcutTrace", "theory.ShortcutRound", "theory.shortcut_loss_rounds"),
            *("theory.shortcut_repulsion", "theory.shortcut_spectrum_hypothesis", "theory.top_subspace_distance"),
        ),
    ),
    "theory-collapse": Group(
        "Theory of classification",
        "Neural collapse: simplices, the minimum of cross-entropy over free features, and floors of Global NC2.",
        (
            *("theory.simplex_etf", "theory.collapsed_minimum", "theory.CollapsedMinimum"),
            "theory.least_global_nc2",
        ),
    ),
    "theory-others": Group(
        "Theory of averaging, local training and new clients",
        "Fixed points and exact risks.",
        (
            *("theory.fedavg_fixed_point", "theory.fedavg_iteration_matrix", "theory.fedavg_rate"),
            *("theory.fedavg_stationary_covariance", "theory.scaffold_iteration_matrix"),
            *("theory.l2gd_stationary_models", "theory.StationaryModels"),
            *("theory.mean_square_rate", "theory.fedrolex_cycle"),
            *("theory.fedavg_contraction", "theory.meta_contraction", "theory.contracted_distance"),
            *("theory.best_local_ridge", "theory.local_mean_risk", "theory.single_model_floor"),
            *("theory.new_client_mean_risk", "theory.new_client_excess_quantile", "theory.outside_length"),
        ),
    ),
}
CONSTANTS = (
    *("ALGORITHMS", "simulation.engines.ENGINES", "METRICS", "claims.MOST"),
    *("statistics.OWN_PREDICTION", "statistics.OWN_THRESHOLD", "statistics.OWN_CONJECTURE"),
)
"""Public names that are constants: dictionaries, sources of claims and a range."""
MODULES = ("claims", "statistics", "theory")
"""Public names that are modules; the groups contain the names in these modules."""

FURTHER = (
    "simulation.engines.ENGINES",
    "prediction.Quantity",
    "prediction.Prediction",
    "simulation.loop.Round",
    "simulation.fitted.FittedClients",
    "algorithms.initial.InitialFactors",
    "problems.ClassTruth",
)
"""Names in groups that are not at the top level."""


def public() -> set[str]:
    """Return every public name, in the form used in `GROUPS`."""
    names = {"claims": OF_CLAIMS, "statistics": lf.statistics.__all__, "theory": lf.theory.__all__}
    within = (f"{module}.{name}" for module in MODULES for name in names[module])
    return {*lf.__all__, *within, *FURTHER} - {*MODULES}


def listed(name: str) -> Iterator[str]:
    """Yield the documentation of a constant with its entries, as lines of reStructuredText."""
    value = operator.attrgetter(name)(lf)
    yield from (name, "-" * len(name), "", f".. py:data:: linfed.{name}", "")
    if not isinstance(value, Mapping):
        yield f"   ``{value!r}``"
    elif all(isinstance(about, type) for about in value.values()):
        yield f"   The classes by their names: {', '.join(f':class:`~linfed.{key}`' for key in value)}."
    else:
        for key, about in value.items():
            text = re.sub(r"[*|_]", r"\\\g<0>", about.definition if isinstance(about, Metric) else about)
            yield f"   - ``{key!r}``: {text.replace('`', '``')}"
    yield ""


def group_page(group: Group) -> str:
    """Return the page of a group: a table of its names, and its constants."""
    constants = [name for name in group.names if name in CONSTANTS]
    names = [name for name in group.names if name not in CONSTANTS]
    lines = [group.title, "=" * len(group.title), "", group.about.replace("`", "``"), ""]
    lines += [".. currentmodule:: linfed", "", ".. autosummary::", "   :nosignatures:", ""]
    lines += [*(f"   {name}" for name in names), ""]
    lines += [line for name in constants for line in listed(name)]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names)]
    return "\n".join(lines) + "\n"


def name_page(name: str) -> str:
    """Return the page of a function or class: its documentation, and links to pages that use it."""
    used = usage().get(name.rpartition(".")[2])
    lines = [".. currentmodule:: linfed", "", name, "=" * len(name), "", *directive(name), ""]
    return "\n".join([*lines, *([f"Used in: {used}.", ""] if used else [])]) + "\n"


def is_class(name: str) -> bool:
    """Return whether a name is a class."""
    return inspect.isclass(operator.attrgetter(name)(lf))


def directive(name: str) -> list[str]:
    """Return the Sphinx directive that documents a name."""
    value = operator.attrgetter(name)(lf)
    if not is_class(name):
        return [f".. autofunction:: linfed.{name}"]
    kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    members, base = replaced(value), public_base(value)
    lines = [f".. {kind}:: linfed.{name}", "   :members:"]
    if members and base:
        further = f"Further methods: those of :class:`linfed.{base}`."
        lines += [f"   :exclude-members: {', '.join(members)}", "", further]
    return lines


def replaced(kind: type) -> list[str]:
    """Return the members that a class defines in place of those of a base class, and that have no other parameters."""
    found = []
    for name, value in vars(kind).items():
        inherited = any(name in vars(base) for base in kind.__mro__[1:])
        if inherited and not name.startswith("_") and "\nParameters\n" not in (inspect.getdoc(value) or ""):
            found.append(name)
    return found


def public_base(kind: type) -> str:
    """Return the name of the nearest base class that has a page, or an empty text."""
    names = {operator.attrgetter(name)(lf): name for group in GROUPS.values() for name in group.names if is_class(name)}
    return next((names[base] for base in kind.__mro__[1:] if base in names), "")


def plain_defaults(signature: str) -> str:
    """Return a signature with the names of the functions that are defaults, and of a default that is missing."""
    signature = re.sub(r"<function <?([\w.]+)>?(?: at 0x[0-9a-f]+)?>", r"\1", signature)
    return re.sub(r"<dataclasses\._MISSING_TYPE object(?: at 0x[0-9a-f]+)?>", "MISSING", signature)


def command_line() -> str:
    """Return the page of the command line, from its parser."""
    from linfed.cli import parser

    os.environ["COLUMNS"] = "100"
    top = parser()
    lines = ["# Command line\n", f"```text\n{top.format_help()}```\n"]
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                lines.append(f"## linfed {name}\n\n```text\n{command.format_help()}```\n")
    return "\n".join(lines)


def benchmarks() -> str:
    """Return the page of the committed benchmarks."""
    record = json.loads((COMMITTED / "benchmarks.json").read_text(encoding="utf-8"))
    machines = list(dict.fromkeys(row["machine"] for row in record["rows"] if "machine" in row))
    head = ("benchmark", "sizes", "linfed", "competitor", "ratio [quartiles]", "target", "target met", "note")
    lines = [
        "# Benchmarks\n",
        f"All rows of `results/committed/benchmarks.json`, measured on {escaped('; '.join(machines))} by `python -m "
        "benchmarks --full`. [Speed](../../speed.md) has a summary.\n",
        escaped(record["method"]) + "\n",
        table(head, (tuple(map(escaped, measured(row))) for row in record["rows"])),
    ]
    return "\n".join(lines) + "\n"


def measured(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of the row of a benchmark."""
    unit = row.get("unit", "")
    times = (f"{row[side]:.3g} {unit}" if row.get(side) is not None else "-" for side in ("ours", "other"))
    ratio = f"{row['ratio']:.3g} [{', '.join(f'{one:.3g}' for one in row['quartiles'])}]" if row.get("ratio") else "-"
    return (row["name"], row["sizes"], *times, ratio, *(row.get(name, "") for name in ("target", "verdict", "note")))


INDEX = """# Reference

{groups}

```{{toctree}}
:hidden:

{names}
```
"""


def write(folder: Path) -> None:
    """Write the reference pages to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, group in GROUPS.items():
        changed(folder / f"{name}.rst", group_page(group).encode())
        for one in group.names:
            if one not in CONSTANTS:
                changed(folder / f"{one}.rst", name_page(one).encode())
    groups = "\n".join(f"- [{group.title}]({name}.rst): {group.about}" for name, group in GROUPS.items())
    changed(folder / "index.md", INDEX.format(groups=groups, names="\n".join(GROUPS)).encode())
    changed(folder / "command-line.md", command_line().encode())
    changed(folder / "benchmarks.md", benchmarks().encode())
