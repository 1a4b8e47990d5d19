"""Comparisons with published code and with stored numbers; `README.md` describes the data.

``python -m tests.validation.comparisons`` runs all of them (minutes) and writes ``comparisons.json``, which the page
docs/validation.md shows and the tests check.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

import linfed as lf

HERE = Path(__file__).resolve().parent
WRITTEN = HERE / "comparisons.json"
ROUNDS = 20
"""Rounds of the runs of PFLlib."""


def load(name):
    """Return the arrays of a file, by name."""
    with np.load(HERE / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


# --- replays: the same data, start and participants -------------------------------------------------------------


class Replay(NamedTuple):
    """The same quantity, (rounds, ...), from published code and from linfed."""

    code: str
    run: str
    method: str
    quantity: str
    theirs: np.ndarray
    ours: np.ndarray

    @property
    def difference(self):
        """Largest difference: of a distance relative to its value in the round, else to the largest entry."""
        scale = np.abs(self.theirs) if self.quantity == "squared distance" else np.abs(self.theirs).max()
        return float((np.abs(self.ours - self.theirs) / scale).max())

    @property
    def tolerance(self):
        """Largest difference that counts as rounding error: small distances and iterated medians lose digits."""
        return 1e-12 if self.quantity == "squared distance" or self.method == "geometric median" else 1e-14


def notebook_run(algorithm, given):
    """Return a run on the data, truth and participants of a run of the notebook."""
    return lf.simulate(
        algorithm,
        lf.GivenTruth(B=given["B_star"], Phi=given["Phi"]),
        data=lf.GivenSamples(given["X"], given["y"]),
        n_rounds=len(given["participants"]),
        participation=given["participants"],
        metrics=["subspace_distance"],
    )


def distances(result):
    """Return the squared distance before each round, as the notebook records it."""
    return result.metrics["subspace_distance"][0, :-1] ** 2


def conventions(given):
    """Return the notebook's conventions as options of FedRep: a given start, B without QR, a sum over participants."""
    return {"rank": 2, "init": given["B0"], "orthonormalize": False, "aggregate": "sum"}


def figure_1(name, step=1.0):
    """Return the replays of a run of Figure 1; `step` multiplies all step sizes."""
    given = load(name)
    result = notebook_run(lf.FedRep(step_size=step * float(given["eta_sum"]), **conventions(given)), given)
    who = (
        "FedRep notebook",
        f"Figure 1, {given['participants'].shape[1]} of {len(given['X'])} clients",
        "FedRep",
    )
    return [
        Replay(*who, "squared distance", given["dist_squared"], distances(result)),
        Replay(*who, "final B", given["B_final"], result.final.B[0]),
        Replay(*who, "final heads", given["W_final"], result.final.W[0]),
    ]


def figure_3(step=1.0):
    """Return the replays of the run of Figure 3; `step` multiplies all step sizes."""
    given = load("notebook_fig3_n100")

    class NotebookGD(lf.FedRep):
        """FedRep with gradient heads whose first round is the notebook's: given heads, then exact ones."""

        def initial_state(self, start):
            return super().initial_state(start).update(W=given["W0"][None])

        def step(self, state, batch, rng):
            heads = lf.ExactHeads() if batch.round == 1 else self.heads
            return lf.FedRep.step(replace(self, heads=heads), state, batch, rng)

    alpha, beta, betaff = (step * float(given[f"{name}_sum"]) for name in ("alpha", "beta", "betaff"))
    ten, single = lf.GradientHeads(steps=10, step_size=betaff), lf.GradientHeads(steps=1, step_size=beta)
    methods = {
        "FedRep": (lf.FedRep(step_size=alpha, **conventions(given)), "fedrep_dist_squared"),
        "10GD-GD": (NotebookGD(step_size=beta, heads=ten, **conventions(given)), "gd10_dist_squared"),
        "GD-GD": (NotebookGD(step_size=beta, heads=single, **conventions(given)), "gdgd_dist_squared"),
    }
    who = "FedRep notebook", "Figure 3, n = 100"
    return [
        Replay(*who, method, "squared distance", given[theirs], distances(notebook_run(algorithm, given)))
        for method, (algorithm, theirs) in methods.items()
    ]


def pfllib(step=1.0):
    """Return the replays of the runs of PFLlib; `step` multiplies all step sizes.

    PFLlib's loss is a client's mean squared error, without the factor 1/2: step sizes double, and `mu` and the control
    variates halve.
    """
    given = load("pfllib")
    data = lf.GivenSamples(given["X"], given["y"])
    eta, mu, server = 2 * step * float(given["lr"]), float(given["mu"]) / 2, float(given["server_lr"])

    def states(algorithm):
        return [one.after for one in lf.iterate(algorithm, data=data, n_rounds=ROUNDS)]

    def theta(algorithm):
        return np.stack([state.S[0, 0] for state in states(algorithm)])

    scaffold = states(lf.SCAFFOLD(step_size=eta, local_steps=5, server_step_size=server))
    lgfedavg = states(lf.LGFedAvg(rank=2, step_size=eta, local_steps=5, init=given["B0"]))
    rows = np.stack([state.own[0].swapaxes(-1, -2).reshape(len(given["X"]), -1) for state in lgfedavg])
    found = [
        ("FedAvg, K = 1", "model", given["fedavg_1_global"], theta(lf.FedAvg(step_size=eta))),
        ("FedAvg, K = 5", "model", given["fedavg_5_global"], theta(lf.FedAvg(step_size=eta, local_steps=5))),
        ("FedProx, K = 5", "model", given["fedprox_global"], theta(lf.FedProx(step_size=eta, local_steps=5, mu=mu))),
        ("SCAFFOLD, K = 5", "model", given["scaffold_global"], np.stack([one.S[0, 0] for one in scaffold])),
        (
            "SCAFFOLD, K = 5",
            "server's variate",
            given["scaffold_c"] / 2,
            np.stack([one.control[0, 0] for one in scaffold]),
        ),
        (
            "SCAFFOLD, K = 5",
            "clients' variates",
            given["scaffold_ci"] / 2,
            np.stack([one.controls[0] for one in scaffold]),
        ),
        ("LG-FedAvg, K = 5", "shared head", given["lgfedavg_w"], np.stack([one.W[0, 0] for one in lgfedavg])),
        ("LG-FedAvg, K = 5", "personal representations", given["lgfedavg_B"], rows),
    ]
    return [Replay("PFLlib", f"{ROUNDS} rounds", *one) for one in found]


def armul(step=1.0):
    """Return the replays of vanilla ARMUL after 1, 10 and 100 rounds; `step` multiplies all step sizes.

    The code's correction v of a client is minus its personal part.
    """
    given, found = load("armul"), []
    samples = ([rows[:m] for rows, m in zip(given[name], given["counts"], strict=True)] for name in ("X", "y"))
    data = lf.GivenSamples(*samples)
    for steps in (1, 3):
        algorithm = lf.ARMUL(
            step_size=step * float(given["eta_global"]),
            penalty=float(given["strength"]),
            personal_steps=steps,
            personal_step_size=step * float(given["eta_local"]),
            weights="samples",
        )
        states = [one.after for one in lf.iterate(algorithm, data=data, n_rounds=int(given["rounds"][-1]))]
        chosen, method = [states[round_] for round_ in given["rounds"]], f"vanilla, proximal steps: {steps}"
        theta, models = (np.stack([get(state) for state in chosen]) for get in (
            lambda state: state.shared[0, 0], lambda state: state.predictors()[0]))  # fmt: skip
        found += [
            Replay("ARMUL", "100 rounds", method, "common model", given[f"gamma_{steps}"], theta),
            Replay("ARMUL", "100 rounds", method, "clients' models", given[f"models_{steps}"], models),
        ]
    return found


def spectral(step=1.0):
    """Return the replays of the spectral method's first step, whose labels of the first client `step` multiplies."""
    given, found = load("spectral"), []
    for name, run in (("equal", "h = 0"), ("similar", "h = 0.3, 10 % outliers")):
        X, y = given[f"X_{name}"], given[f"y_{name}"].copy()
        y[0] *= step
        final = lf.simulate(lf.LocalSpectral(rank=3), data=lf.GivenSamples(X, y), n_rounds=1).final
        pairs = {
            "projector": (given[f"A_{name}"] @ given[f"A_{name}"].T, final.B[0] @ final.B[0].T),
            "clients' models": (given[f"beta_{name}"], final.predictors()[0]),
        }
        found += [Replay("RL-MTL-TL", run, "spectral, step 1", quantity, *pair) for quantity, pair in pairs.items()]
    return found


def byzantine(step=1.0):
    """Return the replays of Byz-AltGDmin, 20 rounds, one task for each of 12 nodes; `step` multiplies the step size."""
    given, found = load("byzantine"), []
    algorithm = lf.FedRep(
        rank=2, step_size=step * float(given["step_size"]), init=given["B0"], aggregate="geometric median"
    )
    for name, run in (("honest", "12 honest nodes"), ("corrupted", "2 of 12 nodes corrupted")):
        data = lf.GivenSamples(given["X"], given[f"y_{name}"])
        B = lf.simulate(algorithm, data=data, n_rounds=20).final.B[0]
        theirs = given[f"B_{name}"] @ given[f"B_{name}"].T
        found.append(Replay("Byz-AltGDmin", run, "geometric median", "projector", theirs, B @ B.T))
    return found


def private_fedrep(step=1.0):
    """Return the replays of FedRep in the Private FedRep code, without noise; `step` multiplies the step size.

    A client's loss is the mean squared error, without the factor 1/2: the step size doubles, and the clip halves.
    """
    given, found = load("private_fedrep"), []
    data, eta = lf.GivenSamples(given["X"], given["y"]), 2 * step * float(given["lr"])
    for name, method in (("free", "no clip"), ("clipped", "clip 0.2"), ("tight", "clip 0.05")):
        clip = float(given[f"clip_{name}"]) / 2
        algorithm = lf.PrivateFedRep(rank=2, step_size=eta, init=given["B0"], clip=clip if np.isfinite(clip) else None)
        result = lf.simulate(algorithm, data=data, n_rounds=int(given["rounds"]))
        refitted = result.adapt(given["X"], given["y"])
        B, theirs = result.final.B[0], given[f"U_{name}"]
        mse = 2 * refitted.losses(given["X_test"], given["y_test"]).mean(keepdims=True)
        pairs = {"projector": (theirs @ theirs.T, B @ B.T), "test error of refitted heads": (given[f"mse_{name}"], mse)}
        found += [
            Replay("Private FedRep", "20 rounds", method, quantity, np.atleast_2d(one), other)
            for quantity, (one, other) in pairs.items()
        ]
    return found


def replays(step=1.0):
    """Return all replays; `step` multiplies all step sizes, so that 1 is right."""
    figures = [one for name in ("notebook_fig1_full", "notebook_fig1_partial") for one in figure_1(name, step)]
    return [
        *figures,
        *figure_3(step),
        *pfllib(step),
        *armul(step),
        *spectral(step),
        *byzantine(step),
        *private_fedrep(step),
    ]


# --- statistics: independent trials -------------------------------------------------------------------------------

DIM, RANK = 100, 5
LEVEL = 0.05
"""Probability that any of the comparisons rejects if all means are equal (Bonferroni)."""
TRIALS = 40
ERM_ROUNDS = 100

MOMENTS = ("method of moments", "subspace distance"), ("method of moments", "new client's error")
ERM = ("empirical risk minimiser", "subspace distance"), ("empirical risk minimiser", "new client's error")
LOCAL = ("local least squares", "new client's error")

RUNS = (
    *(("moments", 0, at) for at in range(7)),
    *(("moments", 1, at) for at in range(7)),
    *(("moments", 2, at) for at in range(6)),
    *(("moments", 3, at) for at in range(2)),
    *(("moments", 4, at) for at in range(7)),
    *(("erm", 0, at) for at in range(2, 7)),
    *(("local", which, 0) for which in range(5)),
)
"""Estimator, set and place in the set of each run; the others of the stored numbers take too long."""
QUICK = {("moments", 2, 3), *(("local", which, 0) for which in range(5))}
"""The runs of the short test suite."""
MOST_SAMPLES = 33_000
"""Largest number of samples per trial of a run that is tested; the command above runs all."""


class Sample(NamedTuple):
    """Mean, standard deviation (with denominator size - 1) and size of a sample."""

    mean: float
    std: float
    size: int

    @property
    def error(self):
        """Standard error of the mean."""
        return self.std / self.size**0.5


class Comparison(NamedTuple):
    """The same mean over trials, from stored numbers and from linfed."""

    estimator: str
    quantity: str
    clients: int | None
    samples: int | None
    new_samples: int
    theirs: Sample
    ours: Sample

    @property
    def z(self):
        """Difference of the means in its standard errors."""
        return (self.ours.mean - self.theirs.mean) / (self.relative_error * self.theirs.mean)

    @property
    def relative_error(self):
        """Standard error of the difference, relative to the stored mean."""
        return float(np.hypot(self.ours.error, self.theirs.error)) / self.theirs.mean

    @property
    def p_value(self):
        """Two-sided p-value of Welch's test for equal means."""
        return float(stats.ttest_ind_from_stats(*self.theirs, *self.ours, equal_var=False).pvalue)


def sets():
    """Return the stored numbers of Tripuraneni, Jin and Jordan, one mapping per set."""
    return json.loads((HERE.parents[1] / "experiments/others/tripuraneni.json").read_text(encoding="utf-8"))["sets"]


def is_tested(run):
    """Return True if the tests repeat a run, because it takes only seconds."""
    estimator, which, at = run
    one = sets()[which]
    return estimator == "local" or one["clients"][at] * one["samples"][at] <= MOST_SAMPLES


def stored(one, name, places):
    """Return the stored numbers of some places of a set, taken together."""
    mean, std = np.array(one[name])[:, places]
    size = one["repetitions"] * len(mean)
    variance = ((std**2).mean() + mean.var()) * size / (size - 1)
    return Sample(float(mean.mean()), float(variance**0.5), size)


def measured(values):
    """Return the sample of one value per trial."""
    return Sample(float(values.mean()), float(values.std(ddof=1)), len(values))


def truth(clients, seed):
    """Return their ground truth: heads N(0, I/k), noise of 1. Nothing depends on the direction of B*."""
    heads = np.random.default_rng(seed).standard_normal((TRIALS, clients, RANK)) / RANK**0.5
    return lf.GivenTruth(B=np.eye(DIM, RANK), W=heads, noise_std=1.0)


def new_client_error(result, new_samples, seed):
    """Return the length of a new client's error, the mean over four of them in each trial."""
    risks = result.new_clients([new_samples], problem=truth(4, (*seed, 1)))
    return np.sqrt(2 * risks[:, 0] - 1.0).mean(axis=-1)


def compare(estimator, which, at):
    """Return the comparisons of one run."""
    one = sets()[which]
    n, m, new = one["clients"][at], one["samples"][at], one["new_samples"]
    seed = (which, at)
    run = {"problem": truth(n, seed), "trials": TRIALS, "seed": seed, "metrics": ["subspace_distance"]}
    if estimator == "local":
        result = lf.simulate(lf.LocalOnly(), data=lf.FreshSamples(1), n_rounds=0, **run | {"metrics": []})
        ours = measured(new_client_error(result, new, seed))
        return [Comparison(*LOCAL, None, None, new, stored(one, "local", slice(None)), ours)]
    if estimator == "moments":
        algorithm = lf.FedRep(rank=RANK, step_size=1.0, init="moments")
        result = lf.simulate(algorithm, data=lf.FreshSamples(m), n_rounds=0, **run)
    else:  # the fixed points of FedRep are the stationary points of the empirical risk
        algorithm = lf.FedRep(rank=RANK, step_size=3.0, init="random")
        result = lf.simulate(algorithm, data=lf.FixedSamples(m, in_law=True), n_rounds=ERM_ROUNDS, **run)
    ours = measured(result.metrics["subspace_distance"][:, -1]), measured(new_client_error(result, new, seed))
    names = MOMENTS if estimator == "moments" else ERM
    theirs = (stored(one, f"{name}_{estimator}", [at]) for name in ("dist", "new_task"))
    return [Comparison(*who, n, m, new, *pair) for who, *pair in zip(names, theirs, ours, strict=True)]


# --- what is written ----------------------------------------------------------------------------------------------


def main():
    """Run everything and write `WRITTEN`."""
    found = {
        "level": LEVEL,
        "replays": [
            {name: getattr(one, name) for name in ("code", "run", "method", "quantity", "difference", "tolerance")}
            for one in replays()
        ],
        "statistics": [
            {**one._asdict(), **{name: getattr(one, name) for name in ("z", "p_value", "relative_error")}}
            for run in RUNS
            for one in compare(*run)
        ],
    }
    lines = ",\n".join(f" {json.dumps(key)}: " + listed(value) for key, value in found.items())
    WRITTEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def listed(value):
    """Return a value as JSON, with one line per element of a list."""
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(one)}" for one in value) + "\n ]"


if __name__ == "__main__":
    main()
