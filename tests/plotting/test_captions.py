"""Captions: the text of the figure, and the sizes of the rows that it was drawn from."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np

import linfed as lf
from linfed.plotting.captions import captions, sizes
from linfed.plotting.panels import drawn_from

CAPTIONS = {"": "The error, for each m.", "x-tuning": "Tuned.", "other": "Tuned.", "y": "All others."}


def table(**columns):
    sizes = {"dim": 20, "rank": 2, "n_clients": 1000, "noise_variance": 1e-3, "n_rounds": 500, "trials": 3} | columns
    return lf.Table([{**sizes, "n_samples": m, "error": np.ones(3)} for m in (10, 5)])


def plot(tables):
    with lf.panels(tables["a"].select(n_samples=5)) as sheet:
        pass
    loose, (by_hand, _) = plt.figure(), plt.subplots()
    return {"": sheet.figure, "x-tuning": loose, "y": drawn_from(by_hand, tables["b"])}


MODULE = SimpleNamespace(CAPTIONS=CAPTIONS, SUMMARY="two figures", plot=plot)


def test_a_caption_is_the_text_and_the_sizes_of_what_was_drawn():
    before = plt.get_fignums()
    found = captions(MODULE, {"a": table(), "b": table(trials=7, n_clients=30)})
    rest = "noise variance 0.001, 500 rounds,"
    assert found == {
        "": f"The error, for each m. Sizes: d = 20, k = 2, n = 1,000, m = 5, {rest} 3 trials.",
        "x-tuning": f"Tuned. Sizes: d = 20, k = 2, n = {{30, 1,000}}, m = {{5, 10}}, {rest} {{3, 7}} trials.",
        "y": f"All others. Sizes: d = 20, k = 2, n = 30, m = {{5, 10}}, {rest} 7 trials.",
    }
    assert plt.get_fignums() == before


def test_an_experiment_without_captions_is_told_by_its_summary():
    module = SimpleNamespace(SUMMARY="two figures", plot=plot)
    assert captions(module, {"a": table(), "b": table()})["y"].startswith("two figures. Sizes: d = 20")


def test_sizes_are_values_lists_or_ranges():
    many = lf.Table([{"data.n_samples": m, "problem.n_clients": 3, "participation": 1.0} for m in range(1, 2001)])
    assert sizes(many) == "Sizes: n = 3, m = 1 to 2,000."
    given = lf.Table(
        [{"n_samples": m, "participation": 0.1, "noise_std": s} for m, s in ((0, 0.0), (100, float("nan")))]
    )
    assert sizes(given) == "Sizes: m = {exact moments, 100}, participation 0.1, noise std 0."
    assert sizes(lf.Table([{"method": "FedRep"}])) == ""
