"""Runs whose predictions are tested: a plain one, and one of each algorithm of each law."""

from dataclasses import fields, replace

import numpy as np

import linfed as lf
from linfed.prediction import averaging, flute, others, personal
from linfed.prediction import fedrep as special
from linfed.prediction import fedrep_near_truth as near_truth
from linfed.prediction import fedrep_rounds as rounds
from linfed.prediction.cases import FedRepRun
from linfed.simulation.job import checked_job

PROBLEM = lf.SharedRepresentation(n_clients=40, dim=30, rank=3, noise_std=0.1)
FRESH = lf.FreshSamples(10)
FIXED = lf.FixedSamples(40, in_law=False)

FEW = replace(PROBLEM, n_clients=6, dim=5, rank=2)

LARGER = lf.UnderParameterized(n_clients=40, dim=30, gap=4.0, gap_after=3, noise_std=0.1)

HIGHER = lf.UnderParameterized(n_clients=60, dim=20, spectrum=[9.0, 8.0, 4.0, 3.0], noise_std=0.1)


def fedrep(**changes):
    return lf.FedRep(**{"rank": 3, "step_size": 0.5, "init": lf.AtDistance(0.6)} | changes)


def vars_of(algorithm):
    return {one.name: getattr(algorithm, one.name) for one in fields(algorithm) if one.init}


def turned(d, k, sine, seed=0):
    """Return an orthonormal B in random columns whose angles to the first k coordinates have this sine, if not 0."""
    B = np.eye(d)[:, :k].copy()
    for i in range(min(k, d - k)):
        B[i, i], B[k + i, i] = np.sqrt(1 - sine**2), sine
    return B @ np.linalg.qr(np.random.default_rng(seed).standard_normal((k, k)))[0]


def predict(algorithm=None, problem=PROBLEM, **changes):
    """Return the prediction of a run, by default of three rounds of FedRep on fresh samples."""
    return lf.predict(algorithm or fedrep(), problem, **{"data": FRESH, "n_rounds": 3} | changes)


def case_of(algorithm=None, problem=PROBLEM, data=FRESH, n_rounds=3, participation=1.0):
    """Return the run of FedRep that its laws are asked about."""
    job = checked_job(algorithm or fedrep(), problem, data, n_rounds, participation, None, 0, [], 1, "auto")
    return FedRepRun(job, job.algorithm)


def given(n, d, r, *, noise_std=0.0, seed=0, scale=None):
    """Return a ground truth on the first r coordinates, with Gaussian heads whose columns have the given lengths."""
    W = np.random.default_rng(seed).standard_normal((n, r))
    return lf.GivenTruth(B=np.eye(d)[:, :r], W=W if scale is None else W * scale, noise_std=noise_std)


SIZES = {"n_clients": 30, "dim": 12, "rank": 2}
WITH_PARTS = {
    "similar": lf.SimilarRepresentations(**SIZES, deviation=0.3, outliers=0.2),
    "outliers": lf.SimilarRepresentations(**SIZES, deviation=0.0, outliers=0.2),
    "shortcuts": lf.SharedWithShortcuts(**SIZES, shortcut_norm=0.5),
}
"""Ground truths with a part of full dimension."""


def with_part(name):
    """Return one ground truth for all trials."""
    truth = WITH_PARTS[name].truth(0, [0])
    return lf.GivenTruth(B=truth.B[0], W=truth.W[0], S=truth.S[0], noise_std=0.3)


def distances(algorithm, problem, data, **run):
    """Return the distance in every round, (trials, rounds + 1)."""
    return lf.simulate(algorithm, problem, data=data, metrics=["subspace_distance"], **run).metrics["subspace_distance"]


STEPS = {"step_size": 0.1, "local_steps": 2}

CLUSTERS = {"clusters": 2, **STEPS}

FAMILY = [lf.FedAvg(**STEPS), lf.FedProx(mu=0.5, **STEPS), lf.SCAFFOLD(**STEPS), lf.FedVARP(**STEPS)]

FAMILY += [lf.ClusterFedVARP(**CLUSTERS), lf.FedSCAVAR(**CLUSTERS)]

NOISY = lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.01)

STILL = [
    fedrep(),
    lf.PrivateFedRep(rank=3, step_size=0.5, clip=1.0),
    lf.CompressedFedRep(rank=3, step_size=0.3, levels=2),
]

SPECTRAL = [lf.MethodOfMoments(rank=3), lf.UStatistic(rank=3), lf.TwoReplica(rank=3), lf.LocalGram(rank=3)]

PERSONAL = [
    lf.Ditto(step_size=0.1),
    lf.APFL(step_size=0.1),
    lf.PFedMe(step_size=0.05),
    lf.PerFedAvg(step_size=0.1, adaptation_step_size=0.1),
]

RUNS_OF_THE_TABLE = {
    special.WholeSpace: (
        [
            fedrep(init="random"),
            lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.01, clip=1.0),
            lf.CompressedFedRep(rank=3, step_size=0.3, levels=2),
        ],
        replace(PROBLEM, dim=3),
        FRESH,
    ),
    special.NoMovement: (STILL, PROBLEM, lf.FreshSamples(3)),
    near_truth.CompressedMessages: (
        [lf.CompressedFedRep(rank=3, step_size=0.3, kept_share=0.5)],
        PROBLEM,
        FRESH,
    ),
    special.EmpiricalMinimum: ([fedrep()], PROBLEM, FIXED),
    special.Narrow: ([fedrep(rank=5, init="random")], PROBLEM, FRESH),
    near_truth.FewDimensions: ([fedrep(init="random")], replace(PROBLEM, dim=5), FRESH),
    rounds.GradientDescentHeads: ([fedrep(heads=lf.GradientHeads(steps=3))], PROBLEM, FRESH),
    rounds.UnderParameterised: ([fedrep()], LARGER, FRESH),
    rounds.WithoutQR: ([fedrep(orthonormalize=False)], PROBLEM, FRESH),
    rounds.MeansWithoutQR: ([fedrep(orthonormalize=False)], PROBLEM, lf.FreshSamples(6)),
    rounds.NoiseAlone: ([NOISY], PROBLEM, lf.FreshSamples(3)),
    rounds.NoisyMessages: ([NOISY], PROBLEM, FRESH),
    rounds.NoisyMeans: ([NOISY], PROBLEM, lf.FreshSamples(6)),
    rounds.SecondOrder: ([fedrep()], PROBLEM, FRESH),
    rounds.Means: ([fedrep()], PROBLEM, lf.FreshSamples(6)),
    others.Minimizer: ([lf.AltMin(rank=3), lf.BurerMonteiro(rank=3)], PROBLEM, FIXED),
    flute.FreshTruncation: (
        [lf.FLUTE(rank=3, step_size=0.01)],
        replace(PROBLEM, n_clients=12, dim=8, noise_std=0.0),
        FRESH,
    ),
    flute.Truncation: ([lf.FLUTE(rank=3, step_size=0.01)], LARGER, FIXED),
    averaging.FixedPoint: (FAMILY, FEW, FIXED),
    averaging.Cycle: ([lf.FedRolex(model_share=0.6, **STEPS)], FEW, FIXED),
    personal.PersonalFixedPoint: (PERSONAL, PROBLEM, FIXED),
    personal.MeanOverCoins: ([lf.L2GD(step_size=0.1)], FEW, FIXED),
    others.SpectralFloor: (SPECTRAL, replace(PROBLEM, n_clients=200, dim=6), FIXED),
    others.LeastSquares: ([lf.LocalOnly()], PROBLEM, FIXED),
    others.TrueSubspace: ([lf.Oracle(rank=3)], PROBLEM, FIXED),
}
"""A run of each algorithm of each law."""
