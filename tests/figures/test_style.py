"""The common style: files for a paper, looks of methods that differ, shades, and labelled logarithmic axes."""

import io

import matplotlib.colors as mcolors
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import linfed as lf
from linfed.figures.style import KINDS, LEAST_TICKS, LOOKS, plain_ticks, same_scale, shades, style, with_symbols
from tests.helpers import ROOT, assert_one_line


def decades():
    """Return figures with a logarithmic axis over three powers of ten: one of `lf.panels`, one of `Result.plot`."""
    error = 10.0 ** -np.linspace(0, 3, 7) * np.array([[0.9], [1.1]])
    with lf.panels(lf.Table([{"method": "FedRep", "error": lf.LabeledArray(error, round=range(7))}]), width=2) as sheet:
        sheet.curves("round", "error")
    problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2)
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9))
    result = lf.simulate(algorithm, problem, data=lf.FreshSamples(10), n_rounds=6, trials=2)
    return sheet.figure, result.plot("subspace_distance").figure


@pytest.mark.long
def test_figures_keep_their_style_when_they_are_saved_later():
    """Ticks take their sizes when they are first drawn, and PDF files their fonts when they are saved."""
    for later, inside in zip(decades(), decades(), strict=True):
        files = [io.BytesIO() for _ in range(3)]
        later.savefig(files[0], format="png")
        with style():
            inside.savefig(files[1], format="png")
        assert files[0].getvalue() == files[1].getvalue()
        later.savefig(files[2], format="pdf")
        assert b"/Type3" not in files[2].getvalue()
        assert b"/Type0" in files[2].getvalue()
        assert {tick.label1.get_size() for ax in later.axes for tick in ax.xaxis.get_major_ticks()} == {7.0}
    plt.close("all")


@pytest.mark.parametrize(
    ("width", "dots"),
    [
        ("column", 1005),
        pytest.param("page", 2070, marks=pytest.mark.long),
        pytest.param(2.0, 600, marks=pytest.mark.long),
    ],
)
def test_files_have_the_width_of_a_paper(tmp_path, width, dots):
    with lf.panels(lf.Table([{"n": 1}]), width=width) as sheet:
        sheet.label("x", "y")
    png, pdf = lf.save_figure(sheet.figure, tmp_path / "name.pdf")
    assert (png.name, pdf.name) == ("name.png", "name.pdf")
    with Image.open(png) as image:
        assert image.width == dots


@pytest.mark.long
def test_a_figure_of_matplotlib_is_saved_with_truetype_fonts_too(tmp_path):
    figure, ax = plt.subplots()
    ax.set_title("title")
    figure.savefig(tmp_path / "plain.pdf")
    assert b"/Type3" in (tmp_path / "plain.pdf").read_bytes()
    written = lf.save_figure(figure, tmp_path / "ours")[1].read_bytes()
    assert b"/CIDFontType2" in written
    assert b"/Type3" not in written
    assert lf.save_figure(ax, tmp_path / "axes")[1].read_bytes() == written
    with pytest.raises(TypeError, match=r"figure = 'name.png' must be a matplotlib Figure or Axes"):
        lf.save_figure("name.png", tmp_path / "axes")


def test_the_name_and_the_texts_of_files_are_checked(tmp_path):
    figure, _ = plt.subplots()
    for stem, metadata, fragments, error in (
        ("x", {5: "x"}, ["a key of metadata = 5", "must be a string"], TypeError),
        ("x.svg", None, ["stem = ", "must not end with .svg", ".png and a .pdf"], ValueError),
        ("x.JPG", None, ["stem = ", "must not end with .JPG"], ValueError),
    ):
        save = lambda stem=stem, metadata=metadata: lf.save_figure(figure, tmp_path / stem, metadata=metadata)  # noqa: E731
        assert_one_line(save, fragments, error)
    assert not list(tmp_path.iterdir())
    assert [path.name for path in lf.save_figure(figure, tmp_path / "x_0.5")] == ["x_0.5.png", "x_0.5.pdf"]
    plt.close(figure)


def test_looks_are_different():
    found = [(mcolors.to_hex(colour), marker) for colour, marker, _ in (*LOOKS.values(), *KINDS)]
    assert len(set(found)) == len(found)
    assert not {mcolors.to_hex(colour) for colour, _, _ in KINDS} & {mcolors.to_hex(one[0]) for one in LOOKS.values()}


# Linear RGB as it looks without red or green cones (Machado, Oliveira and Fernandes 2009, Table 1, severity 1.0).
WITHOUT_CONES = np.array(
    [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ]
)
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def lab(linear):
    """CIE 1976 L*a*b* of linear RGB colours (.., 3)."""
    xyz = np.clip(linear, 0, 1) @ TO_XYZ.T / TO_XYZ.sum(axis=1)
    x, y, z = np.moveaxis(np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def least_difference(colours):
    """Least CIE 1976 difference of two of the colours, as readers without red or without green cones see them."""
    rgb = np.array([mcolors.to_rgb(colour) for colour in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = lab(linear @ WITHOUT_CONES.mT)
    one, other = np.triu_indices(len(colours), 1)
    return np.linalg.norm(seen[:, one] - seen[:, other], axis=-1).min()


@pytest.mark.long
def test_the_methods_of_an_experiment_differ_without_red_or_green():
    together = {frozenset(LOOKS.keys() & table.unique("method")) for table in committed_with_methods()}
    assert len(together) > 5
    for methods in together:
        colours = {LOOKS[name][0] for name in methods}
        assert len(colours) < 2 or least_difference(sorted(colours)) > 10, methods
    assert least_difference(["#882255", "#01665E"]) < 6


def committed_with_methods():
    tables = [lf.Table.load(path) for path in sorted((ROOT / "results" / "committed").glob("*.npz"))]
    return [table for table in tables if "method" in table.columns]


def lightness(colour):
    return float(np.dot(mcolors.to_rgb(colour), (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_shades_go_from_dark_to_light(count):
    found = shades(range(count))
    light = [lightness(colour) for colour, _, _ in found.values()]
    assert light == sorted(light)
    assert len(found) == len(set(found.values())) == count


def test_symbols_are_italic_and_formulas_stay():
    assert with_symbols("n = 3, $n_x$ and m_new") == "$n$ = 3, $n_x$ and $m_{new}$"


def labelled(axis):
    low, high = axis.get_view_interval()
    found = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [text.get_text() for at, text in found if low <= at <= high and text.get_text()]


@pytest.mark.parametrize("ends", [(2.3, 3.2), (0.02, 0.3), (30, 1000), (3, 17), (0.99, 1.02), (1e-5, 3e-4)])
def test_a_short_logarithmic_axis_has_three_labelled_ticks(ends):
    figure, ax = plt.subplots()
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    plain_ticks(ax)
    figure.canvas.draw()
    for axis in (ax.xaxis, ax.yaxis):
        assert LEAST_TICKS <= len(labelled(axis)) <= 9
    plt.close(figure)


def test_ticks_that_are_enough_or_chosen_stay():
    figure, (ax, chosen) = plt.subplots(1, 2)
    for one in (ax, chosen):
        one.set(yscale="log", ylim=(1e-6, 1))
    chosen.set(xscale="log", xlim=(5, 20))
    chosen.set_xticks([5, 20], ["few", "many"])
    before = ax.yaxis.get_major_locator()
    for one in (ax, chosen):
        plain_ticks(one)
    assert ax.yaxis.get_major_locator() is before
    assert [text.get_text() for text in chosen.get_xticklabels()] == ["few", "many"]
    plt.close(figure)


def test_panels_of_one_scale():
    figure, axes = plt.subplots(1, 2)
    for ax, ends in zip(axes, ((0.1, 0.2), (5.0, 40.0)), strict=True):
        ax.plot([1, 2], ends)
        ax.set_yscale("log")
    low, high = axes[0].get_ylim()[0], axes[1].get_ylim()[1]
    same_scale(axes)
    assert all(ax.get_ylim() == (low, high) for ax in axes)
    plt.close(figure)
