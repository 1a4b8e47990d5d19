"""Arguments that do not fit each other, or a run: refused at once, in one line that says what is allowed.

What a single field excludes is in test_fields.py.
"""

import numpy as np
import pytest

import linfed as lf
from linfed import theory
from tests.helpers import assert_one_line, normal

NAN, INF = float("nan"), float("inf")
PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2)
GIVEN = lf.GivenSamples(np.ones((8, 3, 6)), np.ones((8, 3)))
TABLE = lf.Table([{"m": m, "error": lf.LabeledArray([[m, 1.0]], round=[0, 1])} for m in (5, 10)])
TRUTH = PROBLEM.truth(0, [0])
SYMMETRIC = np.tile(np.eye(3), (4, 1, 1))
ASYMMETRIC = SYMMETRIC + np.triu(np.full((3, 3), 1e-8), 1)
SCHEDULE = {"dim": 9, "rank": 2, "n_clients": 5, "n_samples": 9, "n_rounds": 3}
THREE_CLIENTS = [[0, 1, 2]] * 4


def fedrep(**changes):
    return lf.FedRep(**{"rank": 2, "step_size": 0.1} | changes)


def flute(**changes):
    return lf.FLUTE(**{"rank": 2, "step_size": 0.1} | changes)


def run(algorithm=None, problem=PROBLEM, **changes):
    arguments = {"data": lf.FreshSamples(5), "n_rounds": 4} | changes
    return lf.simulate(algorithm or fedrep(), problem, **arguments)


def shared(**changes):
    return lf.SharedRepresentation(**{"n_clients": 8, "dim": 6, "rank": 2} | changes)


def shortcuts(**changes):
    return lf.SharedWithShortcuts(**{"n_clients": 8, "dim": 6, "rank": 2, "shortcut_norm": 0.5} | changes)


def given(X=None, y=None):
    return lf.GivenSamples(np.ones((4, 3, 2)) if X is None else X, np.ones((4, 3)) if y is None else y)


def ones(*shape):
    return np.ones(shape)


def spoiled(*shape, value=NAN, at=()):
    array = np.ones(shape)
    for index in at:
        array[index] = value
    return array


def masked(array):
    return np.ma.masked_array(array, mask=array > 0)


def masked_metric(state, truth):
    return masked(np.ones(len(state.W)))


class MaskedStart(lf.Initial):
    def resolve(self, start, rank):
        return masked(np.ones((start.trials, start.dim, rank)))


ALGORITHMS = {
    "rank above dim": (lambda: run(fedrep(rank=7)), ["rank = 7", "at most dim = 6"]),
    "a distance of a learner without B": (
        lambda: run(lf.LGFedAvg(rank=2, step_size=0.1), metrics=["subspace_distance"]),
        ["subspace_distance", "learns no representation B"],
    ),
    "fine tuning of one layer": (
        lambda: lf.FedAvg(step_size=0.1, fine_tune=lf.ExactHeads()),
        ["fine_tune = ExactHeads", "one-layer", "rank="],
    ),
    "an init of one layer": (lambda: lf.FedAvg(step_size=0.1, init="moments"), ["init", "rank="]),
    "no representation to personalise": (
        lambda: lf.Personalized(base=lf.LocalOnly(), ridge=0.1),
        ["base = LocalOnly", "an algorithm that learns a representation B"],
    ),
    "an oracle without a truth": (
        lambda: run(lf.Oracle(rank=2), None, data=GIVEN),
        ["Oracle requires a ground truth", "problem="],
    ),
    "an oracle above the truth's rank": (lambda: run(lf.Oracle(rank=3)), ["Oracle requires rank = 3", "2"]),
    "joint shortcuts without a ridge": (
        lambda: lf.FedRepShortcut(rank=2, step_size=0.1, solver=lf.ClosedForm(order="joint")),
        ["solver = ClosedForm(order='joint')", "requires ridge > 0"],
    ),
    "rotated heads without QR": (
        lambda: fedrep(rotate_heads=True, orthonormalize=False),
        ["rotate_heads = True", "orthonormalize = True"],
    ),
    "a step size of two axes": (lambda: fedrep(step_size=ones(2, 2)), ["step_size has shape (2, 2)", "(n_rounds,)"]),
    "no algorithm": (lambda: run("FedRep"), ["algorithm = 'FedRep'", "lf.FedRep(rank=2"]),
    "an algorithm's class": (lambda: run(lf.FedRep), ["algorithm = ", "lf.FedRep(rank=2"]),
    "the wrong half of FLUTE": (lambda: flute(gradient_factor=3), ["gradient_factor = 3 ", "1", "2"]),
    "clusters that are an array of no axes": (
        lambda: lf.ClusterFedVARP(step_size=0.1, clusters=np.array(0.5)),
        ["clusters = ", "integer of at least 1"],
    ),
    "no clusters": (lambda: lf.ClusterFedVARP(step_size=0.1, clusters=()), ["clusters = ()", "one number for each"]),
    "no shares": (lambda: lf.FedRolex(step_size=0.1, model_share=()), ["model_share = ()", "one share for each"]),
    "local steps of exact fits": (lambda: lf.LocalOnly(local_steps=7), ["local_steps = 7 requires step_size="]),
    "a step size of exact inner steps": (
        lambda: lf.PFedMe(step_size=0.1, inner_steps=None, inner_step_size=0.3),
        ["inner_step_size = 0.3 requires inner_steps="],
    ),
    "a step size of no steps": (
        lambda: lf.GradientSteps(shortcut_steps=0, shortcut_step_size=0.3),
        ["shortcut_step_size = 0.3 requires shortcut_steps above 0"],
    ),
    "noise of a given penalty": (
        lambda: lf.NuclearNorm(penalty=0.1, noise_std=5.0),
        ["noise_std = 5 requires penalty = None"],
    ),
    "a truth value of no axes": (lambda: fedrep(step_size=np.array(True)), ["step_size = ", "positive finite number"]),
    "a time of no axes": (lambda: fedrep(rank=np.array(np.timedelta64(2, "s"))), ["rank = ", "integer of at least 1"]),
    "a masked number": (lambda: fedrep(step_size=masked(np.array(0.1))), ["step_size = ", "positive finite number"]),
}
INITIAL = {
    "of no trials": (lambda: run(fedrep(init=ones(0, 6, 2))), ["init", "(0, 6, 2)"]),
    "with NaN": (lambda: fedrep(init=spoiled(6, 2, at=[(4, 1)])), ["init", "1 value ", "(4, 1)"]),
    "moments of too many dimensions": (
        lambda: run(problem=shared(dim=200_000), data=lf.FreshSamples(2)),
        ["init = Moments", "200000 x 200000 matrix", "lf.Moments(clients=...)"],
    ),
    "a distance in too few dimensions": (
        lambda: run(fedrep(init=lf.AtDistance(0.5)), shared(dim=3)),
        ["init = AtDistance(delta=0.5)", "dim >= 2 rank", "dim = 3"],
    ),
    "one factor": (lambda: flute(init=ones(6, 2)), ["init = ", "lf.SmallRandom(alpha)", "(B, W)"]),
    "factors of one axis": (lambda: flute(init=(ones(6), ones(8, 2))), ["init B", "(6,)", "(d, k)"]),
    "factors of another dimension": (
        lambda: run(flute(init=(ones(5, 2), ones(8, 2)))),
        ["init B", "(5, 2)", "expected (6, 2)"],
    ),
    "heads of other clients": (lambda: run(flute(init=(ones(6, 2), ones(2, 7, 2)))), ["init W", "(2, 7, 2)", "(8, 2)"]),
    "heads of other trials": (
        lambda: run(flute(init=(ones(6, 2), ones(4, 8, 2))), trials=3),
        ["trials = 3", "init", "4 trials"],
    ),
}
RUNS = {
    "a word": (lambda: run(participation="all"), ["participation = 'all'", "share in (0, 1]", "(n_rounds, p)"]),
    "n_rounds": (lambda: run(n_rounds=-1), ["n_rounds = -1", "integer of at least 0"]),
    "trials": (lambda: run(trials=1.5), ["trials = 1.5", "integer of at least 1"]),
    "a seed": (lambda: run(seed=(1, -2)), ["seed = -2", "integer of at least 0"]),
    "a memory budget": (lambda: run(memory_budget=-1e9), ["memory_budget = -1000000000.0", "positive"]),
    "rounds beyond integers": (lambda: run(n_rounds=10**30), [f"n_rounds = {10**30}", "from 0 to 9223372036854775807"]),
    "a number of thousands of digits": (lambda: run(trials=10**5000), ["trials = a int too long to print"]),
    "rounds beyond memory": (
        lambda: run(n_rounds=10**12),
        ["n_rounds = 1000000000000", "record_every = 1 must be larger"],
    ),
    "trials beyond memory": (lambda: run(trials=10**15), ["trials = 1000000000000000", "memory"]),
    "samples beyond memory": (
        lambda: run(
            lf.Oracle(rank=2), shared(n_clients=10**6, dim=10**4), data=lf.FixedSamples(100), engine="explicit"
        ),
        ["one trial needs about 8.02 TB", "memory_budget is", "n_samples"],
    ),
    "new clients beyond memory": (
        lambda: run(n_rounds=0).new_clients([5], clients=10**10),
        ["10000000000 new clients", "TB", "clients="],
    ),
    "no problem": (lambda: run(problem="shared"), ["problem = 'shared'", "lf.SharedRepresentation"]),
    "a problem's class": (lambda: run(problem=lf.SharedRepresentation), ["problem = <class", "must be a problem"]),
    "no data": (lambda: run(data=ones(8, 3, 6)), ["data", "lf.FreshSamples", "lf.GivenSamples"]),
    "labels without a truth": (lambda: run(problem=None), ["FreshSamples(n_samples=5)", "problem="]),
    "data of other clients": (lambda: run(data=given()), ["X", "(4, 3, 2)", "n = 8", "d = 6"]),
    "data of other trials": (
        lambda: run(data=given(X=ones(2, 8, 3, 6), y=ones(2, 8, 3)), trials=3),
        ["trials = 3", "data", "2 trials"],
    ),
    "a problem to draw from": (lambda: lf.FixedSamples(3).draw("shared"), ["problem = 'shared'"]),
}
ARRAYS = {
    "X of two axes": (lambda: given(X=ones(3, 2)), ["X", "(3, 2)", "(n, m, d)", "(trials, n, m, d)"]),
    "y of other clients": (lambda: given(y=ones(5, 3)), ["y", "(5, 3)", "(4, 3)", "(4, 3, 2)"]),
    "y as a column": (lambda: given(y=ones(4, 3, 1)), ["y", "(4, 3, 1)", "(4, 3)"]),
    "NaN in X": (lambda: given(X=spoiled(4, 3, 2, at=[(2, 1, 0), (3, 0, 0)])), ["X", "2 values", "(2, 1, 0)"]),
    "infinity in y": (lambda: given(y=spoiled(4, 3, value=INF, at=[(1, 2)])), ["y", "1 value ", "(1, 2)"]),
    "complex": (lambda: given(X=1j * ones(4, 3, 2)), ["X is complex", "real"]),
    "masked": (lambda: given(X=masked(ones(4, 3, 2))), ["X must be an array of numbers", "masked", "fill"]),
    "a masked client": (lambda: given(y=[ones(3)] * 3 + [masked(ones(3))]), ["y must be", "leave them out"]),
    "of digits": (lambda: given(X=np.full((4, 3, 2), "3")), ["X must be an array of numbers", "'3'"]),
    "of a digit among numbers": (lambda: given(X=[[[1.0, "2"]]]), ["X must be", "not a number"]),
    "of None": (lambda: given(y=np.full((4, 3), None)), ["y must be", "None", "not a number"]),
    "of dates": (lambda: given(X=np.full((4, 3, 2), np.datetime64("2024-01-01"))), ["X must be", "datetime64[D]"]),
    "of truth values": (lambda: given(X=ones(4, 3, 2) > 0), ["X must be", "True and False", ".astype(float)"]),
    "of huge integers": (lambda: given(y=np.full((4, 3), 10**400)), ["y must be", "too large"]),
    "no samples": (lambda: given(X=ones(4, 0, 2), y=ones(4, 0)), ["X", "(4, 0, 2)", "empty"]),
    "empty lists": (lambda: lf.GivenSamples([], []), ["X is an empty sequence", "at least one client"]),
    "lists of unequal dimension": (
        lambda: given(X=[ones(2, 3), ones(2, 4)], y=[ones(2), ones(2)]),
        ["X[1]", "(2, 4)", "(2, 3)"],
    ),
    "lists of unequal counts": (
        lambda: given(X=[ones(2, 3), ones(4, 3)], y=[ones(2), ones(3)]),
        ["y[1]", "(3,)", "(4,)"],
    ),
    "a client without samples": (lambda: given(X=[ones(0, 3), ones(2, 3)], y=[ones(0), ones(2)]), ["X[0]", "empty"]),
    "samples of several numbers": (lambda: lf.FixedSamples([8, 20]), ["n_samples = ", "8, 20", "lf.GivenSamples"]),
}
TRUTHS = {
    "no regressors": (lambda: lf.GivenTruth(), ["B and W", "S", "Phi"]),
    "B without heads": (lambda: lf.GivenTruth(B=ones(3, 2)), ["B and W"]),
    "Phi beside heads": (lambda: lf.GivenTruth(Phi=ones(4, 3), B=ones(3, 2), W=ones(4, 2)), ["Phi", "W or S"]),
    "a wide B": (lambda: lf.GivenTruth(B=ones(2, 3), W=ones(5, 3)), ["B", "(2, 3)", "at most d = 2"]),
    "heads of another rank": (lambda: lf.GivenTruth(B=ones(3, 2), W=ones(4, 1)), ["B", "(3, 2)", "(3, 1)"]),
    "S of other clients": (lambda: lf.GivenTruth(B=ones(3, 2), W=ones(4, 2), S=ones(5, 3)), ["S", "(5, 3)", "n = 4"]),
    "unequal trials": (lambda: lf.GivenTruth(B=ones(2, 3, 2), W=ones(5, 4, 2)), ["2", "5", "trials"]),
    "NaN": (lambda: lf.GivenTruth(Phi=spoiled(4, 3, at=[(1, 0), (3, 2)])), ["Phi", "2 values", "(1, 0)"]),
    "rank above dim": (lambda: shared(rank=7), ["rank = 7", "at most dim = 6"]),
    "noise that overflows": (lambda: shared(noise_std=1e200), ["noise_std = 1e+200", "at most 1e+70", "overflow"]),
    "noise of other clients": (lambda: shared(noise_std=[1.0, 2.0]), ["noise_std has 2 numbers", "n_clients = 8"]),
    "a condition number below 1": (lambda: shared(condition_number=0.5), ["condition_number = 0.5", "from 1 to 1e+12"]),
    "a condition number of rank 1": (
        lambda: shared(rank=1, condition_number=2.0),
        ["condition_number = 2", "rank = 1"],
    ),
    "sparse and orthogonal": (lambda: shortcuts(orthogonal=True, sparsity=2), ["orthogonal = True", "sparsity = 2"]),
    "more clusters than clients": (lambda: shortcuts(clusters=9), ["clusters = 9", "at most n_clients = 8"]),
    "no room for orthogonal shortcuts": (
        lambda: shortcuts(orthogonal=True, rank=6),
        ["orthogonal = True requires dim > rank", "6"],
    ),
    "a negative covariance": (lambda: lf.Rademacher(covariance=[1.0, -1.0]), ["covariance = ", "positive"]),
    "an asymmetric covariance": (
        lambda: lf.Gaussian(covariance=[[1.0, 2.0], [0.0, 1.0]]),
        ["covariance", "(2, 2)", "symmetric"],
    ),
    "an indefinite covariance": (
        lambda: lf.Gaussian(covariance=[[1.0, 2.0], [2.0, 1.0]]),
        ["covariance", "-1", "semi-definite"],
    ),
    "covariances of other clients": (
        lambda: shared(n_clients=3, design=lf.Gaussian(covariance=[np.eye(6)] * 2)),
        ["covariance", "(2, 6, 6)", "n_clients = 3"],
    ),
}
MASKED = {
    "participation": (lambda: run(participation=masked(np.array(THREE_CLIENTS))), ["participation", "masked"]),
    "a metric": (lambda: run(metrics=[masked_metric]), ["metric 'masked_metric'", "masked"]),
    "an initialisation": (lambda: run(fedrep(init=MaskedStart())), ["B returned by MaskedStart.resolve", "masked"]),
    "an axis": (lambda: lf.LabeledArray([[1.0]], round=masked(ones(1))), ["round must not be a masked array"]),
    "a column": (lambda: lf.Table([{"x": masked(ones(2))}]), ["x must not be a masked array"]),
    "hits": (lambda: lf.statistics.judge_share(masked(ones(2)), 0.5), ["hits must not be a masked array"]),
}
THEORY = {
    "ascending singular values": (lambda: theory.flute_gap([1.0, 2.0], 1), ["spectrum = [1.0, 2.0]", "descending"]),
    "a text as a spectrum": (lambda: theory.flute_gap("x", 1), ["spectrum = 'x' must be an array of numbers"]),
    "a negative round": (
        lambda: theory.fedrep_bound([3, -1], step_size=0.1, start=0.5, smallest=1.0),
        ["rounds = [3, -1]", "at least 0"],
    ),
    "a round that is NaN": (
        lambda: theory.fedrep_bound([NAN], step_size=0.1, start=0.5, smallest=1.0),
        ["rounds = [nan]", "at least 0"],
    ),
    "rounds of two axes": (
        lambda: theory.flute_bound([2.0, 1.0], 1, 0.1, 5, ones(2, 2)),
        ["rounds has shape (2, 2), expected (R,)"],
    ),
    "a negative singular value": (
        lambda: theory.fedrep_bound([3], step_size=0.1, start=0.5, smallest=-1.0),
        ["smallest = -1.0", "at least 0"],
    ),
    "a singular value that is NaN": (
        lambda: theory.fedrep_bound([3], step_size=0.1, start=0.5, smallest=NAN),
        ["smallest = nan", "at least 0"],
    ),
    "a largest singular value that is NaN": (lambda: theory.fedrep_step_limit(NAN), ["largest = nan", "positive"]),
    "starts of other runs": (
        lambda: theory.fedrep_bound([3], step_size=0.1, start=[0.5, 0.5], smallest=ones(3)),
        ["start (2,)", "smallest (3,)", "agree"],
    ),
    "condition numbers of other runs": (
        lambda: theory.fedrep_least_samples(dim=9, rank=2, participants=5, condition=ones(3), start=[0.5, 0.5]),
        ["condition (3,)", "start (2,)", "agree"],
    ),
    "factors of other trials": (
        lambda: theory.flute_relative_gradient(ones(2, 4, 2), ones(3, 5, 2), ones(5, 4, 4), ones(5, 4)),
        ["B (2,)", "W (3,)", "agree"],
    ),
    "a singular value whose square is 0": (
        lambda: theory.fedrep_bound_rounds(0.1, step_size=0.1, start=0.5, smallest=1e-300),
        ["smallest = 1e-300", "from 1e-150 to 1e+150"],
    ),
    "a singular value whose square overflows": (
        lambda: theory.fedrep_bound_rounds(0.1, step_size=0.1, start=0.5, smallest=1e200),
        ["smallest = 1e+200", "from 1e-150 to 1e+150"],
    ),
    "a bound that does not fall": (
        lambda: theory.fedrep_bound_rounds(0.1, step_size=1e-300, start=0.5, smallest=1e-100),
        ["step_size = 1e-300", "too small"],
    ),
    "no allowed failures": (
        lambda: theory.fedrep_predicted_samples(
            dim=9, rank=2, participants=5, step_size=0.1, smallest=1.0, start=0.5, allowed=1e-300
        ),
        ["allowed = 1e-300", "from 1e-16 to 0.5"],
    ),
    "predicted samples of a square of 0": (
        lambda: theory.fedrep_predicted_samples(
            dim=9, rank=2, participants=5, step_size=0.1, smallest=1e-300, start=0.5
        ),
        ["smallest = 1e-300", "from 1e-150 to 1e+150"],
    ),
    "a schedule from an angle whose square is 0": (
        lambda: theory.best_step_schedule(**SCHEDULE, noise_std=0.1, delta=1e-170),
        ["delta = 1e-170", "at least 1e-150"],
    ),
    "an asymptote from an angle whose square is 0": (
        lambda: theory.schedule_asymptote(**SCHEDULE, noise_std=0.1, delta=1e-170),
        ["delta = 1e-170", "at least 1e-150"],
    ),
    "singular values of NaN": (lambda: theory.flute_gap([2.0, NAN], 1), ["spectrum holds 1 value", "(1,)"]),
    "infinite singular values": (lambda: theory.flute_rate([INF, 1.0], 1, 0.1), ["spectrum holds 1 value", "(0,)"]),
    "singular values of 0": (lambda: theory.flute_step_limit([0.0, 0.0], 1), ["spectrum = [0.0, 0.0]", "above 0"]),
    "a bound of singular values of 0": (
        lambda: theory.flute_bound([[2.0, 1.0], [0.0, 0.0]], 1, 0.1, 5, [3]),
        ["spectrum = ", "above 0"],
    ),
    "an asymmetric matrix": (lambda: theory.fedavg_rate(ASYMMETRIC, step_size=0.1), ["A of shape (4, 3, 3)", "symm"]),
    "an asymmetric matrix of a cycle": (
        lambda: theory.fedrolex_cycle(ASYMMETRIC, ones(4, 3), step_size=0.1, model_share=0.5),
        ["A of shape (4, 3, 3)", "symmetric"],
    ),
    "an asymmetric matrix of a covariance": (
        lambda: theory.fedavg_stationary_covariance(ASYMMETRIC, ones(4, 3), step_size=0.1, participants=2),
        ["A of shape (4, 3, 3)", "symmetric"],
    ),
    "shares of other clients": (
        lambda: theory.fedrolex_cycle(SYMMETRIC, ones(4, 3), step_size=0.1, model_share=[0.5, 1.0]),
        ["model_share has shape (2,)", "(4,)"],
    ),
    "no shares of a cycle": (
        lambda: theory.fedrolex_cycle(SYMMETRIC, ones(4, 3), step_size=0.1, model_share=[]),
        ["model_share = []", "one share for each client"],
    ),
    "clusters of other clients": (
        lambda: theory.mean_square_rate(
            lf.ClusterFedVARP(step_size=0.1, clusters=(0, 1, 0)), SYMMETRIC, participants=2
        ),
        ["clusters has 3 entries", "4 clients"],
    ),
    "more clusters than clients of a rate": (
        lambda: theory.mean_square_rate(lf.ClusterFedVARP(step_size=0.1, clusters=20), SYMMETRIC, participants=2),
        ["clusters = 20", "at most n_clients = 4"],
    ),
    "a median of changes": (
        lambda: theory.mean_square_rate(lf.FedAvg(step_size=0.1, aggregate="median"), SYMMETRIC, participants=2),
        ["algorithm.aggregate = 'median'", "'mean'"],
    ),
    "a number as FLUTE": (lambda: theory.flute_trace([], 3, TRUTH), ["algorithm = 3", "lf.FLUTE"]),
    "a word as an identity": (
        lambda: theory.flute_trace([], flute(), TRUTH, identity="no"),
        ["identity = 'no'", "True or False"],
    ),
    "FedRep as the shortcut variant": (
        lambda: theory.shortcut_trace([], fedrep(), TRUTH),
        ["algorithm = FedRep", "lf.FedRepShortcut"],
    ),
    "a number as a truth with shortcuts": (
        lambda: theory.shortcut_trace([], lf.FedRepShortcut(rank=2, step_size=0.1), 3),
        ["truth = 3", "ground truth"],
    ),
    "a word as equations": (
        lambda: theory.shortcut_trace([], lf.FedRepShortcut(rank=2, step_size=0.1), TRUTH, equations="no"),
        ["equations = 'no'", "True or False"],
    ),
    "dependent columns of a gradient": (
        lambda: theory.mean_gradient(ones(6, 2), TRUTH, n_samples=9),
        ["B of shape (6, 2)", "linearly independent", "rank 1"],
    ),
    "dependent columns of exact heads": (
        lambda: theory.at_exact_heads(lf.GivenSamples(normal(4, 5, 6), ones(4, 5)), ones(1, 6, 2)),
        ["B of shape (1, 6, 2)", "linearly independent", "rank 1"],
    ),
    "a representation of 0": (
        lambda: theory.at_exact_heads(lf.GivenSamples(normal(4, 5, 6), ones(4, 5)), 0 * ones(1, 6, 2)),
        ["B of shape (1, 6, 2)", "linearly independent", "rank 0"],
    ),
    "a B that is not orthonormal": (
        lambda: theory.shortcut_repulsion(TRUTH, 2 * TRUTH.B, 9),
        ["B of shape (1, 6, 2)", "orthonormal columns"],
    ),
    "arrays of other clients": (
        lambda: theory.fedrolex_cycle(ones(4, 3, 3), ones(5, 3), step_size=0.1, model_share=0.5),
        ["A has shape (4, 3, 3)", "(5, 3, 3)"],
    ),
    "dependent columns": (lambda: theory.outside_length(ones(4, 2), ones(3, 4)), ["linearly independent", "rank 1"]),
    "heads of 0": (
        lambda: theory.second_order_evolution(0 * ones(9, 2), dim=9, n_samples=9, step_size=0.1, n_rounds=1, delta=0.5),
        ["W of shape (9, 2)", "must not be 0"],
    ),
    "a floor in few dimensions": (
        lambda: theory.spectral_floor(lf.UStatistic(rank=2), normal(9, 2), dim=3, n_samples=5, noise_std=0.1),
        ["dim = 3", "at least 4"],
    ),
    "a problem as a truth": (lambda: theory.near_truth_drift(PROBLEM, n_samples=9), ["truth = Shared"]),
    "a text as a result": (lambda: theory.theorem1_run("x"), ["result = 'x' must be a result of lf.simulate"]),
    "bases of two dimensions": (lambda: lf.subspace_distance(ones(4, 1), ones(5, 1)), ["(4, 1)", "(5, 1)", "agree"]),
    "a basis without full rank": (lambda: lf.subspace_distance(ones(4, 2), ones(4, 1)), ["B1", "full column rank"]),
    "no values": (lambda: lf.statistics.median_interval([]), ["values has shape (0,)"]),
    "a level above 1": (lambda: lf.statistics.quantile_interval([1.0], 2), ["level = 2 must be", "from 0 to 1"]),
}
TABLES = {
    "rows that are a number": (lambda: lf.Table(5), ["rows = 5 must be a sequence of mappings"]),
    "rows that are an array of no axes": (lambda: lf.Table(np.array(0.5)), ["rows = ", "must be a sequence"]),
    "a row that is a number": (lambda: lf.Table([{"x": 1}, 5]), ["rows[1] = 5 must be a mapping"]),
    "a column that is a number": (lambda: TABLE.assign(x=1), ["x = 1 must be a function"]),
    "rows by number": (lambda: TABLE[1:3], ["slice(1, 3, None) must be the name of a column", "select()"]),
    "a file without a name": (lambda: TABLE.to_csv(""), ["path = '' must name a file"]),
    "a CSV file of a suffix": (lambda: TABLE.to_csv(".csv"), ["path = '.csv' must name a file"]),
    "a file that is a number": (lambda: TABLE.save(5), ["path = 5 must be a path"]),
    "no axis": (
        lambda: lf.Table([{"error": lf.LabeledArray([[1.0, 2.0]], round=[0, 1])}]).to_records(),
        ["to_records() requires the name of an axis", "to_records('round')"],
    ),
    "no axes": (lambda: lf.plot_curves(5, TABLE, "round", "error", by="m"), ["ax = 5 must be matplotlib Axes"]),
    "no panels": (lambda: lf.panels(5).__enter__(), ["table = 5 must be a lf.Table"]),
    "half a row": (lambda: lf.panels(TABLE, row=2.5).__enter__(), ["row = 2.5 must be an integer of at least 1"]),
    "no height": (lambda: lf.panels(TABLE, height=0).__enter__(), ["height = 0 must be a positive"]),
    "no prediction": (
        lambda: run().plot("subspace_distance", prediction="lf.predict"),
        ["prediction = ", "must be a prediction, such as lf.predict(result)"],
    ),
}
CALLS = {
    f"{group}: {name}": call
    for group, calls in {
        "algorithms": ALGORITHMS,
        "initial": INITIAL,
        "runs": RUNS,
        "arrays": ARRAYS,
        "truths": TRUTHS,
        "masked": MASKED,
        "theory": THEORY,
        "tables": TABLES,
    }.items()
    for name, call in calls.items()
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(assert_one_line(*CALLS[name], errors=(ValueError, TypeError, lf.SizeError))) < 500
    assert not list(tmp_path.iterdir())


def test_what_is_right_at_the_border_passes():
    """The last value that is allowed."""
    assert run(fedrep(rank=6), shared(rank=6), participation=8, n_rounds=1).participants == 8
    assert run(participation=1e-9, n_rounds=0, trials=1, seed=(0,)).participants == 1
    assert lf.AtDistance(1).delta == 1.0
    assert run(fedrep(init=lf.Moments(clients=8)), n_rounds=1).trials == 1
    assert run(fedrep(init=lf.AtDistance(0.0)), shared(dim=4), n_rounds=0).metrics["subspace_distance"] < 1e-15
    assert shared(rank=1, condition_number=1).condition_number == 1.0
    none = run(participation=np.zeros((0, 3), dtype=int), n_rounds=0)
    assert (none.participants, none.rounds.tolist()) == (3, [0])
    assert issubclass(lf.SizeError, MemoryError)
