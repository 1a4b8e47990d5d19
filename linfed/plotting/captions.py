"""Captions of figures, from the dictionary ``CAPTIONS`` of an experiment and the sizes of the drawn rows.

``CAPTIONS`` has the text of each figure by its key in the dictionary that ``plot`` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from linfed.checks import is_real
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
    ("{} rounds", ("n_rounds",)),
    ("up to {} rounds", ("most_rounds",)),
    ("{} trials", ("trials",)),
)
"""Text of each size in a caption, and the names of its column; the first name that a table has is used.

A name also matches the last part of a dotted column name. m = 0 means exact moments instead of samples."""

MOST_LISTED = 7
"""Largest number of listed values; of more, only the smallest and the largest are given."""


def captions(
    module: ModuleType, tables: Mapping[str, Table], figures: Mapping[str, Figure] | None = None
) -> dict[str, str]:
    """Return the captions of an experiment's figures by their keys.

    Parameters
    ----------
    module : module
        The experiment.
    tables : mapping of str to Table
        Tables of the experiment by name.
    figures : mapping of str to Figure, optional
        The figures from ``module.plot(tables)``; by default they are drawn, and closed again.

    Returns
    -------
    dict of str
        One line for each figure: its text in ``CAPTIONS``, or ``SUMMARY`` without one, and the sizes. The sizes come
        from the table given to `lf.panels` (`linfed.plotting.panels.drawn_from`), or else from all tables.
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


def caption(module: ModuleType, key: str, sentence: str) -> str:
    """Return the caption of one figure: its text in ``CAPTIONS`` or the summary, followed by `sentence`."""
    summary = getattr(module, "SUMMARY", "")
    text = getattr(module, "CAPTIONS", {}).get(key) or (f"{summary}." if summary else "")
    return f"{text} {sentence}".strip()


def drawn_sizes(figure: Figure, tables: Mapping[str, Table]) -> str:
    """Return a sentence with the sizes of the drawn rows, or of all tables if these are not known."""
    return sizes(rows_of(figure) or Table.joined(tables.values()))


def sizes(table: Table) -> str:
    """Return a sentence with the sizes of a table's rows; empty without any.

    A size with several values is given as a list, or as a range if there are more than `MOST_LISTED`.
    """
    parts = []
    for text, names in SIZES:
        values = next(filter(None, (_values(table, name) for name in names)), [])
        if values and not (text.startswith("participation") and values == [1]):
            parts.append(text.format(_listed(values, {0: "exact moments"} if text.startswith("m ") else {})))
    return f"Sizes: {', '.join(parts)}." if parts else ""


def _values(table: Table, name: str) -> list[Any]:
    """Return the sorted different numbers in the column `name`, or in the columns whose last part is `name`."""
    columns = [name] if name in table.columns else [one for one in table.columns if one.endswith(f".{name}")]
    found = {row[one] for row in table.rows for one in columns if is_real(row.get(one)) and row[one] == row[one]}
    return sorted(found)


def _listed(values: list[Any], named: Mapping[Any, str]) -> str:
    """Return numbers as text; `named` has words for some of them."""
    words = [named.get(value, f"{value:,}" if isinstance(value, int) else f"{value:g}") for value in values]
    if len(words) > MOST_LISTED:
        return f"{words[0]} to {words[-1]}"
    return words[0] if len(words) == 1 else f"{{{', '.join(words)}}}"


def write_caption(path: Path, caption: str) -> Path:
    """Write a caption as a text file atomically, and return its path."""
    with replacing(path) as file:
        file.write(f"{caption}\n".encode())
    return path
