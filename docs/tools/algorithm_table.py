"""Tables of all algorithms for the guide: what they learn, source and messages; engines that draw no rows."""

from __future__ import annotations

import contextlib
import inspect
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

import linfed as lf
from linfed.data.sources import Sizes
from linfed.report.markdown import table
from linfed.simulation.engines import ENGINES, EngineQuery, obstacle

REQUIRED: dict[str, Any] = {
    "rank": 4,
    "step_size": 0.1,
    "adaptation_step_size": 0.1,
    "penalty": 1.0,
    "mu": 1.0,
    "clusters": 2,
    "first_phase": 1,
    "ridge": 1.0,
    "base": lf.FedRep(rank=4, step_size=0.1),
}
"""Values for fields without a default."""

ONE_OF: dict[type[lf.Algorithm], dict[str, Any]] = {lf.CompressedFedRep: {"kept_share": 0.25, "shared_mask": True}}
"""Values for one of several fields of which an algorithm requires one, and of the fields that depend on it."""

GROUPS = {
    "representation": "A shared representation",
    "averaging": "One model for all clients",
    "personal": "A personal model for each client",
    "one_round": "One round",
    "baselines": "Baselines and references",
}
"""Titles of the tables, by the subpackage of the algorithms."""

SIZES = Sizes(n_clients=20, dim=30, participants=20, n_rounds=5, features=20)


def algorithm_table() -> str:
    """Return a table for each of `GROUPS` as Markdown, in the order of ``lf.ALGORITHMS``."""
    header = ("algorithm", "what it learns", "source", "floats down / up")
    groups: dict[str, list[tuple[str, ...]]] = {name: [] for name in GROUPS}
    for kind in lf.ALGORITHMS.values():
        groups[kind.__module__.split(".")[2]].append(row(kind))
    return "\n\n".join(f"**{GROUPS[name]}**\n\n{table(header, rows).strip()}" for name, rows in groups.items())


def served_by(engine: str) -> str:
    """Return the names of the algorithms that an engine supports with default options, as Markdown."""
    return ", ".join(
        f"`lf.{kind.__name__}`" for kind in lf.ALGORITHMS.values() if engine in engines(with_required(kind))
    )


def for_classes() -> str:
    """Return the names of the algorithms that support classification without further options, as Markdown."""
    names = []
    for kind in lf.ALGORITHMS.values():
        with contextlib.suppress(ValueError):
            with_required(kind).check_loss(3)
            names.append(f"`lf.{kind.__name__}`")
    return ", ".join(names)


def row(kind: type[lf.Algorithm]) -> tuple[str, ...]:
    """Return the row of an algorithm."""
    sent = " / ".join(dict.fromkeys(floats(kind)))
    return f"`lf.{kind.__name__}`", with_required(kind).description, source(kind), sent


def with_required(kind: type[lf.Algorithm], **changes: Any) -> lf.Algorithm:
    """Return an instance with the values of `REQUIRED` and `ONE_OF`."""
    fields = inspect.signature(kind).parameters.values()
    names = [one.name for one in fields if one.default is one.empty]
    if unknown := set(names) - set(REQUIRED):
        raise LookupError(f"add values for {sorted(unknown)} to REQUIRED in docs/tools/algorithm_table.py")
    required = {name: REQUIRED[name] for name in names} | ONE_OF.get(kind, {})
    return kind(**required | {name: value for name, value in changes.items() if name in required})


def source(kind: type[lf.Algorithm]) -> str:
    """Return authors and year of the first reference in the docstring, or its first words."""
    text = inspect.getdoc(kind) or ""
    words = " ".join(text.partition("References\n----------\n")[2].partition("\n\n")[0].split())
    found = re.match(r"(.*?\b(?:19|20)\d\d)\b|([^,.;]*)", words)
    if not found or not found[1]:
        return found[2] if found else ""
    authors, _, year = found[1].rpartition(" ")
    names = re.split(r", | and ", authors)
    return found[1] if len(names) < 3 else f"{names[0]} et al. {year}"


def floats(kind: type[lf.Algorithm]) -> tuple[str, str]:
    """Return the floats per round and participant, down and up, as formulas in d and k.

    For an algorithm of classes alone also in their number c.
    """
    sizes = [(d, k, c) for d in (20, 40, 60) for k in (2, 4, 6) for c in ((3, 5) if kind is lf.GeneralFLUTE else (0,))]
    sent = []
    for d, k, c in sizes:
        base = lf.FedRep(rank=k, step_size=0.1)
        sent.append(with_required(kind, rank=k, base=base).communication(dim=d, classes=c))
    d, k, c = np.array(sizes, dtype=float).T
    terms = {"d k": d * k, "d^2": d * d, "d": d, "k": k, "c k": c * k, "c": c}
    matrix = np.stack(list(terms.values()), axis=1)
    found = np.linalg.lstsq(matrix, np.array(sent), rcond=None)[0]
    np.testing.assert_allclose(matrix @ found, sent, atol=1e-6)
    down, up = (formula(dict(zip(terms, column, strict=True))) for column in found.T)
    return down, up


def formula(coefficients: dict[str, float]) -> str:
    """Return a sum of terms as text; coefficients are small fractions."""
    parts = []
    for term, value in coefficients.items():
        share = Fraction(float(value)).limit_denominator(8)
        if share:
            factor = "" if share.numerator == 1 else f"{share.numerator} "
            divisor = "" if share.denominator == 1 else f"/{share.denominator}"
            parts.append(f"{factor}{term}{divisor}")
    return " + ".join(parts) or "0"


def engines(algorithm: lf.Algorithm) -> list[str]:
    """Return the engines that support an algorithm with fresh or fixed samples of Gaussian x."""
    problem: Any = lf.SharedRepresentation(n_clients=20, dim=30, rank=4)
    sizes = SIZES
    if isinstance(algorithm, lf.GeneralFLUTE):
        problem = lf.Classes(n_clients=20, n_classes=3, classes_per_client=2, dim=30)
        sizes = replace(SIZES, classes=3)
    found = []
    for engine in ENGINES:
        for data in (lf.FreshSamples(40), lf.FixedSamples(40)):
            query = EngineQuery(algorithm=algorithm, problem=problem, data=data, sizes=sizes)
            if not obstacle(engine, query) and engine not in found:
                found.append(engine)
    return found
