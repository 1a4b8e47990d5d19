"""FedRep's noise floor against the rank k: the prediction, and the rule that it grows like sqrt(k).

Figures
-------
"" : Subspace distance at the noise floor against the rank k: medians over trials with 10-90 % bars, the prediction
    (dotted) and the rule sqrt(k) (dashed), which is drawn through the first point.
"""

import numpy as np

import linfed as lf
from linfed.statistics import fit_exponent, judge_exponent, judge_farthest_off, judge_predicted_exponent

SUMMARY = "FedRep's noise floor against the rank k"


def cells(quick):
    """Return a run for each rank, which starts at B* and ends at the floor."""
    run = lf.Run(
        algorithm=lf.FedRep(rank=1, step_size=0.3, init=lf.TrueSubspace()),
        problem=lf.SharedRepresentation(n_clients=100, dim=60, rank=1, noise_std=0.1),
        data=lf.FreshSamples(n_samples=30),
        rounds=60,
        trials=20 if quick else 100,
        metrics=["subspace_distance"],
    )
    return lf.grid(run, **{"problem.rank, algorithm.rank": [(k, k) for k in (1, 2, 4, 8)]})


def floors(table):
    """Return the ranks (K,), and the measured and the predicted floors (trials, K)."""
    predicted = []
    for row in table:
        sizes = {name: row[name] for name in ("dim", "n_clients", "n_samples", "noise_std")}
        angle = lf.theory.noise_floor(row["step_size"], rank=row["problem.rank"], **sizes)
        predicted.append(lf.theory.median_distance(angle**2 * np.eye(row["problem.rank"]), dim=row["dim"]))
    measured = table["subspace_distance"][..., -1].T
    return table["problem.rank"], measured, np.broadcast_to(predicted, measured.shape)


def claims(tables):
    """Judge the exponent and the level of the prediction, and the exponent of the rule."""
    ranks, measured, predicted = floors(tables["runs"])
    row = tables["runs"].rows[0]
    setting = {"setting": f"n = {row['problem.n_clients']}, d = {row['problem.dim']}, m = {row['data.n_samples']}"}
    return [
        judge_predicted_exponent(
            ranks, measured, predicted, margin=0.05, claim="The floor grows with k as predicted", **setting
        ),
        judge_farthest_off(
            measured, predicted, claimed_low=0.9, claimed_high=1.1, claim="The floor is as predicted", **setting
        ),
        judge_exponent(
            fit_exponent(ranks, measured),
            0.5,
            kind="equal",
            margin=0.05,
            theorem=False,
            claim="The floor grows like sqrt(k)",
            source="rule of thumb: k directions have k times the noise",
            **setting,
        ),
    ]


def plot(tables):
    """Draw the measured floors, the prediction and the rule."""
    ranks, measured, predicted = floors(tables["runs"])
    with lf.panels(tables["runs"], width="column") as sheet:
        ax = sheet.axes[0, 0]
        low, middle, high = np.quantile(measured, (0.1, 0.5, 0.9), axis=0)
        ax.errorbar(ranks, middle, (middle - low, high - middle), fmt="o", label="measured")
        ax.plot(ranks, predicted[0], ":k", label="predicted")
        ax.plot(ranks, middle[0] * np.sqrt(ranks), "--", color="0.5", label="sqrt(k)")
        sheet.label("k", "subspace distance", xscale="log", yscale="log")
        ax.set_xticks(ranks, ranks)
        ax.minorticks_off()
        sheet.legend()
    return {"": sheet.figure}
