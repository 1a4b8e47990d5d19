"""Captions of figures: what an experiment's docstring says of each, and the sizes of the rows that it was drawn from.

The docstring of an experiment's module has a section ``Figures``, an entry for each key of what ``plot`` returns, or
for each pattern of keys, in quotation marks::

    Figures
    -------
    "" : The error of every client, in ascending order; a panel for each m.
    "*-tuning" : The final error against the step size.

The section ends with an empty line. The key itself goes before a pattern, and one pattern before those below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from linfed.errors import is_real
from linfed.plotting.panels import rows_of
from linfed.system.files import replacing
from linfed.tables.table import Table

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from matplotlib.figure import Figure

SIZES = (
    ("d = {}", ("dim",)),
    ("k = {}", ("rank",)),
    ("n = {}", ("n_clients",)),
    ("m = {}", ("n_samples", "m")),
    ("participation {}", ("participation",)),
    ("noise std {}", ("noise_std",)),
    ("noise variance {}", ("noise_variance",)),
    ("{} rounds", ("rounds",)),
    ("up to {} rounds", ("most_rounds",)),
    ("{} trials", ("trials",)),
)
"""What is told of a table's rows, and the columns that hold it: the first that there is, or that ends so.

Where m is 0 clients have exact moments in the place of samples."""

MOST_LISTED = 7
"""Values that are told one by one; of more the least and the largest."""


def captions(
    module: ModuleType, tables: Mapping[str, Table], figures: Mapping[str, Figure] | None = None
) -> dict[str, str]:
    """Return the caption of each of an experiment's figures, by its key.

    Parameters
    ----------
    module : module
        Of the experiment.
    tables : mapping
        Its tables, by name.
    figures : mapping, optional
        What ``module.plot(tables)`` has returned; drawn, and closed, by default.

    Returns
    -------
    dict of str
        Each in one line: what the docstring says, or where it has no entry the experiment's ``SUMMARY``, and the sizes
        of the rows that `lf.page` was given (`linfed.plotting.panels.drawn_from`), or else of all tables.
    """
    if figures is None:
        import matplotlib.pyplot as plt

        figures = module.plot(tables)
        try:
            return captions(module, tables, figures)
        finally:
            for figure in figures.values():
                plt.close(figure)
    return {key: caption(module, key, drawn_sizes(figure, tables)) for key, figure in figures.items()}


def caption(module: ModuleType, key: str, said: str) -> str:
    """Return the caption of one figure by its key: the docstring's entry or the summary, and what is said of sizes."""
    summary = getattr(module, "SUMMARY", "")
    text = entry(entries(module.__doc__ or ""), key) or (f"{summary}." if summary else "")
    return f"{text} {said}".strip()


def drawn_sizes(figure: Figure, tables: Mapping[str, Table]) -> str:
    """Return a sentence with the sizes of the rows that a figure was drawn from, or else of all tables' rows."""
    return sizes(rows_of(figure) or sum(tables.values(), Table()))


def entries(docstring: str) -> dict[str, str]:
    """Return the entries of a docstring's section ``Figures`` by their key or pattern, each in one line."""
    section = re.search(r"(?ms)^Figures\n-+\n(.*?)(?:\n\s*\n|\Z)", docstring)
    parts = re.split(r'(?m)^"([^"\n]*)" : ', section[1]) if section else [""]
    if parts[0].strip():
        raise ValueError(f'the section Figures begins with {parts[0].strip()!r}; an entry begins with "key" : ')
    return {key: " ".join(text.split()) for key, text in zip(parts[1::2], parts[2::2], strict=True)}


def entry(told: Mapping[str, str], key: str) -> str:
    """Return the entry of a key, or of the first pattern that it fits; empty where there is none."""
    return told[key] if key in told else next((told[one] for one in told if fnmatchcase(key, one)), "")


def sizes(table: Table) -> str:
    """Return a sentence with the sizes of a table's rows: of each the value, or the values, or their range."""
    said = []
    for text, names in SIZES:
        values = next(filter(None, (_values(table, name) for name in names)), [])
        if values and not (text.startswith("participation") and values == [1]):
            said.append(text.format(_listed(values, {0: "exact moments"} if text.startswith("m ") else {})))
    return f"Sizes: {', '.join(said)}." if said else ""


def _values(table: Table, name: str) -> list[Any]:
    """Return the different numbers in the columns of a name: those that are called so, or else that end so."""
    own = [name] if name in table.columns else [one for one in table.columns if one.endswith(f".{name}")]
    found = {row[one] for row in table.rows for one in own if is_real(row.get(one)) and row[one] == row[one]}
    return sorted(found)


def _listed(values: list[Any], named: Mapping[Any, str]) -> str:
    """Return numbers as words, some of which have a name."""
    words = [named.get(value, f"{value:,}" if isinstance(value, int) else f"{value:g}") for value in values]
    if len(words) > MOST_LISTED:
        return f"{words[0]} to {words[-1]}"
    return words[0] if len(words) == 1 else f"{{{', '.join(words)}}}"


def write_caption(path: Path, caption: str) -> Path:
    """Write a caption as a text file, by rename, and return its path."""
    with replacing(path) as file:
        file.write(f"{caption}\n".encode())
    return path
