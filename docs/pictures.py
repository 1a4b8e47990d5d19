"""Draw the pictures in docs/ from ``results/committed/``, except exact-law.png (``exact_law_picture.py``).

Run ``python docs/pictures.py`` (about two minutes), optionally with the names of some pictures. It also writes all
figures of these experiments to ``results/committed/`` as small WebP files, for ``linfed report``. The ``plot`` of each
experiment draws the committed tables, and the picture is saved with a palette of 256 colours. Each picture contains the
hash of its tables, which `tests/test_numbers.py` checks, and the sizes for its caption, which `tests/test_legend.py`
checks.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
from PIL.PngImagePlugin import PngInfo

from linfed.figures.png import shrink_png, small_picture
from linfed.figures.style import style
from linfed.plotting.captions import drawn_sizes
from linfed.reproduction.experiments import load
from linfed.reproduction.record import ResultsFolder
from linfed.reproduction.run import load_tables

DOCS = Path(__file__).resolve().parent
EXPERIMENTS, COMMITTED = DOCS.parent / "experiments", DOCS.parent / "results" / "committed"
RUNS = ResultsFolder(COMMITTED)

PICTURES: dict[str, tuple[str, str, int]] = {
    "altgdmin": ("altgdmin", "", 1400),
    "altgdmin-samples": ("altgdmin", "samples", 1400),
    "altmin": ("altmin", "", 1400),
    "altmin-ends": ("altmin", "ends", 1400),
    "anisotropy": ("anisotropy", "", 2070),
    "anisotropy-mechanism": ("anisotropy", "mechanism", 1400),
    "averaging-family": ("averaging-family", "", 2070),
    "averaging-family-floats": ("averaging-family", "floats", 2070),
    "averaging-family-own": ("averaging-family", "own", 2070),
    "compression": ("compression", "", 1005),
    "compression-floats": ("compression", "floats", 2070),
    "estimators": ("estimators", "", 2070),
    "estimators-ranking": ("estimators", "ranking", 1400),
    "fedavg-fixed-point": ("fedavg-fixed-point", "", 2070),
    "fedavg-learns": ("fedavg-learns", "", 1400),
    "fedrep-bound-samples": ("fedrep-bound-samples", "rules", 1400),
    "fedrep-fig1": ("fedrep-fig1", "", 2070),
    "fedrep-fig3": ("fedrep-fig3", "", 2070),
    "fedrep-fig3-notebook": ("fedrep-fig3", "notebook", 2070),
    "fedrep-fig4": ("fedrep-fig4", "", 1005),
    "fedrep-fixed-samples": ("fedrep-fixed-samples", "", 1400),
    "fedrep-million": ("fedrep-million", "", 1005),
    "fedrep-floor": ("fedrep-floor", "", 2070),
    "fedrep-moments": ("fedrep-moments", "", 1400),
    "fedrep-near-truth": ("fedrep-near-truth", "", 1400),
    "fedrep-pays": ("fedrep-pays", "", 1400),
    "fedrep-pays-complexity": ("fedrep-pays", "complexity", 1400),
    "fedrep-recovery": ("fedrep-recovery", "", 1400),
    "fedrep-refitting": ("fedrep-refitting", "", 1005),
    "fedrep-rounds": ("fedrep-rounds", "", 1400),
    "fedrep-samples": ("fedrep-samples", "", 1400),
    "fedrep-schedule": ("fedrep-schedule", "", 1400),
    "fedrep-start": ("fedrep-start", "", 1400),
    "fedrep-state-evolution": ("fedrep-state-evolution", "", 1400),
    "fedrep-state-evolution-steps": ("fedrep-state-evolution", "steps", 1400),
    "fedrep-theorem1": ("fedrep-theorem1", "looseness", 1400),
    "flute-classification": ("flute-classification", "", 2070),
    "flute-dimension": ("flute-dimension", "", 2070),
    "flute-classification-nc2": ("flute-classification", "nc2", 2070),
    "flute-digits": ("flute-digits", "", 2070),
    "flute-digits-nc2": ("flute-digits", "nc2", 2070),
    "flute-divergence": ("flute-divergence", "", 1400),
    "flute-example1": ("flute-example1", "", 1400),
    "flute-fig1": ("flute-fig1", "", 1400),
    "flute-fig3": ("flute-fig3", "", 1400),
    "flute-fig3-ranks": ("flute-fig3", "ranks", 1400),
    "flute-fig4": ("flute-fig4", "", 1400),
    "flute-minima": ("flute-minima", "", 1400),
    "flute-rate-and-floor": ("flute-rate-and-floor", "", 1400),
    "flute-theorem51": ("flute-theorem51", "", 1400),
    "flute-theorem55": ("flute-theorem55", "region", 1400),
    "flute-theorem55-constants": ("flute-theorem55", "constants", 1400),
    "heterogeneity": ("heterogeneity", "", 2070),
    "heterogeneity-map": ("heterogeneity", "map", 1400),
    "heterogeneity-ranking": ("heterogeneity", "ranking", 1400),
    "maml-learns-rates": ("maml-learns", "rates", 1400),
    "mllam-samples": ("mllam-samples", "", 1400),
    "private-fedrep": ("private-fedrep", "", 1400),
    "shortcut-bound": ("shortcut-bound", "", 1400),
    "shortcut-convergence": ("shortcut-convergence", "", 1500),
    "shortcut-lost": ("shortcut-lost", "", 1400),
    "shortcut-phase": ("shortcut-phase", "", 1500),
    "shortcut-search": ("shortcut-search", "", 1400),
    "similar-representations": ("similar-representations", "", 1400),
    "spectral-transition": ("spectral-transition", "", 1400),
    "tripuraneni": ("tripuraneni", "", 2070),
    "tripuraneni-samples": ("tripuraneni", "samples", 1400),
    "weights": ("weights", "", 1400),
    "wider-rank": ("wider-rank", "", 1400),
}
"""Experiment, figure and width in pixels of each picture."""
DIGEST = "tables"
"""Name of the PNG text field with the hash of the tables."""
SIZES = "sizes"
"""Name of the PNG text field with the sizes for the caption."""


def digest(name: str) -> str:
    """Return the hash of an experiment's committed tables."""
    found = hashlib.sha256()
    for path in sorted(COMMITTED.glob(f"{name}-*.npz")):
        found.update(path.read_bytes())
    return found.hexdigest()


def draw(names: list[str]) -> None:
    """Draw the named pictures, loading each experiment once."""
    import matplotlib.pyplot as plt

    with style(), mpl.rc_context({"figure.max_open_warning": 0}):
        for experiment in dict.fromkeys(PICTURES[name][0] for name in names):
            tables = load_tables(RUNS.read(experiment), RUNS)
            figures = load(experiment, EXPERIMENTS).plot(tables)
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
    path = DOCS / f"{name}.png"
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
