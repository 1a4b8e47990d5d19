"""Scaling laws in a figure, with their measured and predicted exponents."""

import matplotlib.pyplot as plt
import numpy as np

from linfed.figures.laws import draw_law

SIZES = np.array([1.0, 3.0, 10.0])


def test_a_law_is_drawn_with_both_exponents():
    figure, ax = plt.subplots()
    values = SIZES**-0.5 * np.exp(0.01 * np.random.default_rng(0).standard_normal((40, 3)))
    draw_law(ax, SIZES, values, np.tile(2.0 * SIZES**-0.25, (40, 1)), method="FLUTE")
    assert [text.get_text() for text in ax.texts] == ["-0.50 (-0.25)"]
    assert ax.get_legend_handles_labels()[1] == ["predicted", "FLUTE, measured"]
    predicted, measured = ax.lines[1], ax.containers[0].lines[0]
    np.testing.assert_allclose(predicted.get_ydata(), 2.0 * SIZES**-0.25)
    np.testing.assert_allclose(measured.get_ydata(), SIZES**-0.5, rtol=0.01)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "3", "10"]
    plt.close(figure)


def test_bars_reach_over_four_fifths_of_the_trials_and_every_second_of_six_sizes_has_a_tick():
    figure, (ax, below) = plt.subplots(2)
    sizes = 2.0 ** np.arange(6)
    values = np.linspace(1.0, 2.0, 11)[:, None] / sizes
    draw_law(ax, sizes, values, np.tile(1.0 / sizes, (11, 1)), method="FLUTE", below=below)
    for axes, scale in ((ax, 1.0 / sizes), (below, np.ones(6))):
        ends = [segment[:, 1] for segment in axes.containers[0].lines[2][0].get_segments()]
        np.testing.assert_allclose(ends, np.transpose([1.1 * scale, 1.9 * scale]))
        assert axes.get_xticks().tolist() == [2.0, 8.0, 32.0]
    assert [[label.get_text() for label in axes.get_xticklabels()] for axes in (ax, below)] == [
        [""] * 3,
        ["2", "8", "32"],
    ]
    plt.close(figure)
