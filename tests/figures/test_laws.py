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
