"""Draw the pictures in docs/figures/ from ``results/committed/``.

Three have programs of their own: ``exact_law_picture.py``, ``rounds.py`` and ``validation_picture.py``.

Run ``python -m docs.tools.pictures`` (about two minutes), optionally with the names of some pictures. It also writes
all figures of these experiments to ``results/committed/`` as small WebP files, for ``linfed report``. The ``plot`` of
each experiment draws the committed tables, and the picture is saved with a palette of 256 colours. Each picture
contains the hash of its tables and the sizes for its caption, which `tests/docs/test_pictures.py` checks. The first
panel of each experiment's first picture is a thumbnail of the gallery.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from docs.tools.paths import COMMITTED, EXPERIMENTS, FIGURES, THUMBNAILS
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
THUMBNAIL = (480, 300)
"""Size of a thumbnail in pixels."""
PANEL = (2.5, 1.5)
"""Size of the panel of a thumbnail in inches, without its labels."""


def digest(name: str) -> str:
    """Return the hash of an experiment's committed tables."""
    found = hashlib.sha256()
    for table in sorted(RUNS.read(name).tables):
        found.update((COMMITTED / f"{name}-{table}.npz").read_bytes())
    return found.hexdigest()


def draw(names: list[str]) -> None:
    """Draw the named pictures, loading each experiment once."""
    import matplotlib.pyplot as plt

    mpl.use("Agg")
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
            first = next(key for one, key, _ in PICTURES.values() if one == experiment)
            save_thumbnail(figures[first], experiment)
            for figure in figures.values():
                plt.close(figure)


def save(figure: Figure, name: str, sizes: str) -> None:
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


def save_small(figure: Figure, experiment: str, key: str) -> None:
    """Save a figure next to the committed tables, for `linfed report`."""
    with tempfile.TemporaryDirectory() as folder:
        figure.savefig(Path(folder, "figure.png"))
        data = small_picture(Path(folder, "figure.png"))[0]
    RUNS.figure(experiment, key, ".webp").write_bytes(data)


def save_thumbnail(figure: Figure, experiment: str) -> None:
    """Save the first panel of a figure with its labels, as the thumbnail of an experiment; this changes the figure."""
    show_first_panel(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", pad_inches=0.03)
    with Image.open(buffer) as image:
        small = ImageOps.pad(image.convert("RGB"), THUMBNAIL, Image.Resampling.LANCZOS, color="white")
    metadata = PngInfo()
    metadata.add_text(DIGEST, digest(experiment))
    THUMBNAILS.mkdir(exist_ok=True)
    palette = small.quantize(64, dither=Image.Dither.NONE)
    palette.save(THUMBNAILS / f"{experiment}.png", optimize=True, pnginfo=metadata)


def show_first_panel(figure: Figure) -> Axes:
    """Hide all but the first panel of a figure, and give the panel all its labels and the size `PANEL`.

    The panel keeps its size if its labels would overlap.
    """
    first, *others = figure.axes
    figure.draw_without_rendering()
    own_size = first.get_window_extent().size / figure.dpi
    figure.set_layout_engine("none")
    for other in (*others, *figure.legends, *figure.texts):
        other.set_visible(False)
    place = first.get_subplotspec()
    below = [
        one for one in others if place and one.get_subplotspec() and one.get_subplotspec().colspan == place.colspan
    ]
    labels = [one.get_xlabel() for one in below if one.get_xlabel()]
    if labels and not first.get_xlabel():
        first.set_xlabel(labels[0])  # rows further below can have another axis
    first.tick_params(labelbottom=True, labelleft=True)
    for size in (PANEL, own_size):
        first.set_position((0.0, 0.0, *(np.array(size) / figure.get_size_inches())))
        figure.draw_without_rendering()
        if not labels_overlap(first):
            break
    return first


def labels_overlap(ax: Axes) -> bool:
    """Return whether labels of the ticks of an axis overlap by more than a fifth of their size."""
    for axis, place in ((ax.xaxis, 0), (ax.yaxis, 1)):
        shown = [tick.label1 for tick in axis.get_major_ticks() if tick.label1.get_text()]
        boxes = np.array([text.get_window_extent().get_points()[:, place] for text in shown]).reshape(-1, 2)
        low, high = boxes[boxes[:, 0].argsort()].T
        if (high[:-1] - low[1:] > 0.2 * (high - low)[:-1]).any():
            return True
    return False


def main(names: list[str]) -> int:
    """Draw the named pictures (all by default) and return the exit status."""
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        print(f"unknown pictures: {', '.join(unknown)}; available: {', '.join(PICTURES)}", file=sys.stderr)
        return 1
    draw(names or list(PICTURES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
