"""Shares, such as accuracies, in figures and summaries of tables: a linear axis, and larger values are better."""

import matplotlib.pyplot as plt
import numpy as np

import linfed as lf


def own_accuracy(state, truth):
    """A user's own share of each trial."""
    return np.full(len(state.W), 0.5)


def test_an_accuracy_of_a_loaded_table_is_drawn_like_that_of_a_run(tmp_path):
    problem = lf.Classes(n_clients=5, n_classes=4, classes_per_client=2, dim=6, rank=2, test_samples=15)
    scales = {"accuracy": "linear", "test_loss": "log", "own_accuracy": "linear"}
    cell = lf.Run(
        algorithm=lf.GeneralFLUTE(rank=2, step_size=0.2),
        problem=problem,
        data=lf.FixedSamples(9),
        n_rounds=3,
        trials=6,
        metrics=["accuracy", "test_loss", own_accuracy],
    )
    table = lf.Table.load(lf.sweep([cell]).save(tmp_path / "table.npz"))
    for name, scale in scales.items():
        with lf.panels(table) as sheet:
            lf.plot_curves(sheet.axes[0, 0], table, "round", name, by="algorithm")
        assert sheet.axes[0, 0].get_yscale() == scale
        assert table.summarize(name, rows="algorithm").best == ("largest" if scale == "linear" else "smallest")
    ax = lf.Result.load(cell.simulate().save(tmp_path / "run.npz")).plot("own_accuracy")
    assert (ax.get_yscale(), ax.get_ylabel()) == ("linear", "own accuracy")
    plt.close("all")
