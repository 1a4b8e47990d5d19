"""FedRep's noise floor against the rank k: the prediction, and the rule that it grows like sqrt(k)."""

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.statistics import judge_farthest_off, judge_predicted_exponent

SUMMARY = "FedRep's noise floor against the rank k"
CAPTIONS = {
    "": "Subspace distance at the noise floor against the rank k: medians over trials with 10-90 % bars, the "
    "prediction (dotted) and the rule sqrt(k) (dashed), which is drawn through the first point."
}


def cells(quick):
    """Return a run for each rank, which starts at B* and ends at the floor."""
    run = lf.Run(
        algorithm=lf.FedRep(rank=1, step_size=0.3, init=lf.TrueSubspace()),
        problem=lf.SharedRepresentation(n_clients=100, dim=60, rank=1, noise_std=0.1),
        data=lf.FreshSamples(n_samples=30),
        n_rounds=60,
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


def judge_growth(table, **fields):
    """Judge the exponent of the measured floors in k, minus that of the predicted ones."""
    return judge_predicted_exponent(*floors(table), tolerance=0.05, **fields)


def judge_level(table, **fields):
    """Judge the measured floors divided by the predicted ones."""
    return judge_farthest_off(*floors(table)[1:], **fields)


SETTING = "n = {n_clients}, d = {dim}, m = {n_samples}"
CLAIMS = (
    c.Claim(
        "The floor grows with k as predicted",
        c.OWN_PREDICTION.adding("the tolerance is our threshold"),
        c.Statistic("measured minus predicted exponent in k", judge_growth, c.near(0.0, 0.05)),
        setting=SETTING,
    ),
    c.Claim(
        "The floor is as predicted",
        c.OWN_PREDICTION.adding("the range is our threshold"),
        c.Statistic("measured divided by predicted", judge_level, c.within(0.9, 1.1)),
        setting=SETTING,
    ),
    c.Claim(
        "The floor grows like sqrt(k)",
        c.OWN_CONJECTURE.adding("k directions have k times the noise"),
        c.exponent(lambda row: row["subspace_distance"][:, -1], "problem.rank", 0.5, 0.05),
        setting=SETTING,
        theorem=False,
    ),
)


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
