"""The pictures of the pages are drawn from the committed tables, and a method has one look in all of them."""

import matplotlib.colors as mcolors
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from PIL import Image

import linfed as lf
from docs.tools import pictures, rounds, validation_picture
from linfed.figures.style import LABELS, LOOKS, style
from linfed.plotting.captions import drawn_sizes
from linfed.reproduction.experiments import load
from linfed.reproduction.judging import derived_tables
from linfed.reproduction.run import load_tables

SCRIPTS = {"rounds": rounds, "validation": validation_picture}


def information(picture):
    """Return the texts that a picture carries, and its width."""
    with Image.open(pictures.FIGURES / f"{picture}.png") as image:
        return image.info, image.width


def test_the_pictures_are_those_of_the_committed_tables():
    assert {path.stem for path in pictures.FIGURES.glob("*.png")} == {*pictures.PICTURES, "exact-law", *SCRIPTS}
    digests = {name: pictures.digest(name) for name, _, _ in pictures.PICTURES.values()}
    assert {path.stem for path in pictures.THUMBNAILS.iterdir()} == set(digests)
    old = []
    for name, (path, size) in {
        one: (pictures.THUMBNAILS / f"{one}.png", pictures.THUMBNAIL) for one in digests
    }.items():
        with Image.open(path) as image:
            if image.info.get(pictures.DIGEST) != digests[name] or image.size != size:
                old += [picture for picture, (experiment, *_) in pictures.PICTURES.items() if experiment == name]
    for name, (experiment, _, wanted) in pictures.PICTURES.items():
        info, width = information(name)
        if info.get(pictures.DIGEST) != digests[experiment] or width != wanted:
            old.append(name)
    assert not old, f"run python -m docs.tools.pictures {' '.join(dict.fromkeys(old))}"


def test_a_thumbnail_is_the_first_panel_with_all_its_labels():
    figure, axes = plt.subplots(2, 2, sharex=True, sharey=True, layout="constrained")
    axes[1, 0].set_xlabel("round")
    axes[0, 0].set_ylabel("distance")
    figure.legend([], [], title="all methods")
    first = pictures.show_first_panel(figure)
    assert first.get_xlabel() == "round"
    assert [ax.get_visible() for ax in axes.flat] == [True, False, False, False]
    assert not figure.legends[0].get_visible()
    figure.draw_without_rendering()
    assert all(label.get_visible() for label in (*first.get_xticklabels(), *first.get_yticklabels()))
    size = first.get_window_extent().size / figure.dpi
    np.testing.assert_allclose(size, pictures.PANEL)
    plt.close(figure)


def test_a_thumbnail_has_the_label_of_the_nearest_row():
    figure, axes = plt.subplots(3, 1, layout="constrained")
    axes[1].set_xlabel("clients")
    axes[2].set_xlabel("condition number")
    assert pictures.show_first_panel(figure).get_xlabel() == "clients"
    plt.close(figure)


@pytest.mark.parametrize("picture", SCRIPTS)
def test_a_picture_with_a_script_of_its_own_is_that_of_the_script(picture):
    script = SCRIPTS[picture]
    assert information(picture)[0].get(script.DIGEST) == script.digest(), f"run python -m {script.__name__}"


# --- looks -----------------------------------------------------------------------------------------------------------


NAMES = {LABELS.get(name, name): name for name in LOOKS}
NAMES |= {
    "Alg. 1, one step size": "Algorithm 1",
    "FedRep, exact in distribution": "FedRep",
    "FedRep, random initialisation": "FedRep",
    "FedRep, random start": "FedRep",
    "FedRep, fixed samples": "FedRep",
    "FedRep, same batch": "FedRep",
    "FedRep, given distance": "FedRep",
    "FedRep, step $(K - 1)\\,\\eta^2$, $K = 5$": "FedRep",
    "FedRep, step $\\alpha\\beta$": "FedRep",
}
"""Methods by what legends call them."""


def handles(figure):
    """Yield the label, colour and marker of everything in a figure that a legend names and that has a marker."""
    for ax in figure.axes:
        containers = [one for one in ax.containers if isinstance(one, ErrorbarContainer)]
        parts = {id(one.lines[0]): one.get_label() for one in containers}
        for line in ax.lines:
            label = parts.get(id(line), line.get_label())
            if line.get_marker() not in ("", "None", None) and not label.startswith("_"):
                yield label, mcolors.to_hex(line.get_color()), line.get_marker()


def wrong_looks(figures):
    """Return the labels that have another look than their method's, or a method's without being it."""
    methods = {(mcolors.to_hex(colour), marker): name for name, (colour, marker, _) in LOOKS.items()}
    found = set()
    for figure in figures.values():
        for label, colour, marker in handles(figure):
            own = NAMES.get(label.split("; ")[0].removesuffix(" (diverged)"))
            if own and (colour, marker) != (mcolors.to_hex(LOOKS[own][0]), LOOKS[own][1]):
                found.add(f"{label} does not look like {own}")
            if not own and (colour, marker) in methods and "measured" not in label:
                found.add(f"{label} looks like {methods[colour, marker]}")
    return found


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # of tables in few digits
@pytest.mark.parametrize("name", sorted({name for name, _, _ in pictures.PICTURES.values()}))
def test_a_method_has_one_look_and_nothing_else_has_it(name):
    """And what the pictures in docs/ carry of sizes, for their captions, is what they would be drawn from."""
    tables, module = load_tables(pictures.RUNS.read(name), pictures.RUNS), load(name, pictures.EXPERIMENTS)
    tables |= derived_tables(module, tables)
    with style():
        figures = module.plot(tables)
    wrong = wrong_looks(figures)
    sizes = {key: drawn_sizes(figure, tables) for key, figure in figures.items()}
    for figure in figures.values():
        plt.close(figure)
    assert not wrong
    told = [(picture, key) for picture, (experiment, key, _) in pictures.PICTURES.items() if experiment == name]
    assert [one for one in told if information(one[0])[0][pictures.SIZES] != sizes[one[1]]] == [], (
        "run python -m docs.tools.pictures"
    )


def test_a_borrowed_look_is_found():
    error = lf.LabeledArray(np.ones((2, 3)), round=range(3))
    with lf.panels(lf.Table([{"method": name, "error": error} for name in ("FedRep", "FLUTE", "mine")])) as sheet:
        sheet.curves("round", "error", looks={"FLUTE": "FedRep", "mine": "GD-GD"})
    found = wrong_looks({"": sheet.figure})
    assert found == {"FLUTE does not look like FLUTE", "mine looks like GD-GD"}
    plt.close("all")
