"""Draw the pictures in docs/figures/ from ``results/committed/``, except exact-law.png (``exact_law_picture.py``).

Run ``python -m docs.tools.pictures`` (about two minutes), optionally with the names of some pictures. It also writes
all figures of these experiments to ``results/committed/`` as small WebP files, for ``linfed report``. The ``plot`` of
each experiment draws the committed tables, and the picture is saved with a palette of 256 colours. Each picture
contains the hash of its tables and the sizes for its caption, which `tests/docs/test_pictures.py` checks.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
from PIL.PngImagePlugin import PngInfo

from docs.tools.paths import COMMITTED, EXPERIMENTS, FIGURES
from linfed.figures.png import shrink_png, small_picture
from linfed.figures.style import style
from linfed.plotting.captions import drawn_sizes
from linfed.reproduction.experiments import declared_in, load
from linfed.reproduction.judging import derived_tables
from linfed.reproduction.record import ResultsFolder
from linfed.reproduction.run import load_tables

RUNS = ResultsFolder(COMMITTED)

PICTURES = {
    RUNS.figure(name, key, "").name: (name, key, width)
    for name, declared in declared_in(EXPERIMENTS).items()
    for key, width in declared.pictures.items()
}
"""Experiment, figure and width in pixels of each picture, as the experiments declare them (``PICTURES``)."""
DIGEST = "tables"
"""Name of the PNG text field with the hash of the tables."""
SIZES = "sizes"
"""Name of the PNG text field with the sizes for the caption."""


def digest(name: str) -> str:
    """Return the hash of an experiment's committed tables."""
    found = hashlib.sha256()
    for table in sorted(RUNS.read(name).tables):
        found.update((COMMITTED / f"{name}-{table}.npz").read_bytes())
    return found.hexdigest()


def draw(names: list[str]) -> None:
    """Draw the named pictures, loading each experiment once."""
    import matplotlib.pyplot as plt

    with style(), mpl.rc_context({"figure.max_open_warning": 0}):
        for experiment in dict.fromkeys(PICTURES[name][0] for name in names):
            tables = load_tables(RUNS.read(experiment), RUNS)
            module = load(experiment, EXPERIMENTS)
            tables |= derived_tables(module, tables)
            figures = module.plot(tables)
            for name in names:
                if PICTURES[name][0] == experiment:
                    figure = figures[PICTURES[name][1]]
                    save(figure, name, drawn_sizes(figure, tables))
            for key, figure in figures.items():
                save_small(figure, experiment, key)
                plt.close(figure)


def save(figure: mpl.figure.Figure, name: str, sizes: str) -> None:
    """Save a figure as a picture in docs/, with the sizes for its caption."""
    experiment, _, width = PICTURES[name]
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    image = shrink_png(buffer, width)
    metadata = PngInfo()
    metadata.add_text(DIGEST, digest(experiment))
    metadata.add_text(SIZES, sizes)
    path = FIGURES / f"{name}.png"
    image.save(path, optimize=True, pnginfo=metadata)
    print(f"{path.name}: {image.width} x {image.height}, {path.stat().st_size / 1000:.0f} kB")


def save_small(figure: mpl.figure.Figure, experiment: str, key: str) -> None:
    """Save a figure next to the committed tables, for `linfed report`."""
    with tempfile.TemporaryDirectory() as folder:
        figure.savefig(Path(folder, "figure.png"))
        data = small_picture(Path(folder, "figure.png"))[0]
    RUNS.figure(experiment, key, ".webp").write_bytes(data)


def main(names: list[str]) -> int:
    """Draw the named pictures (all by default) and return the exit status."""
    mpl.use("Agg")
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        print(f"unknown pictures: {', '.join(unknown)}; available: {', '.join(PICTURES)}", file=sys.stderr)
        return 1
    draw(names or list(PICTURES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
