"""Algorithms on samples of classes: GeneralFLUTE's loss and heads, the balance of FedRoD, reductions, what is refused.

Every round is compared with its loop in `test_algorithms`.
"""

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.representation.general_flute import random_heads
from linfed.numerics.streams import Stream, TrialRandom, generators
from tests.algorithms import class_references as ref
from tests.data.class_samples import Begin, draw, slope
from tests.helpers import assert_one_line, normal
from tests.loops import round_of
from tests.worlds import draw_classes, draw_participants

C, D, K, ETA = 4, 5, 2, 0.3
COMMON = {"rank": K, "step_size": ETA}


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.fixture
def world():
    return draw_classes([3, 9, 1, 6, 7], D, K, classes=C)


def run(algorithm, world, n_rounds=4, p=3):
    participants = draw_participants(world.n, p, n_rounds)
    return lf.simulate(algorithm, data=world.data(), n_rounds=n_rounds, participation=participants).final


# --- GeneralFLUTE --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "options"), [(1.0, {}), (0.7, {"head_scale": 0.7})])
def test_random_heads_come_from_the_stream_of_the_algorithm(scale, options):
    rng, begin = TrialRandom(generators(0, Stream.ALGORITHM, range(2))), lambda: Begin(draw())
    drawn = rng.standard_normal((1, C, K)) / np.sqrt(K)
    flute = lf.GeneralFLUTE(**COMMON, **options).initial_state(begin()).W
    babu = lf.FedBABU(**COMMON).initial_state(begin()).W
    for W, factor, clients in ((flute, scale, 5), (babu, 1.0, 1), (random_heads(begin(), 3, K), 1.0, 3)):
        close(W[..., :-1], np.broadcast_to(factor * drawn, (2, clients, C, K)))
        assert not W[..., -1].any()


@pytest.mark.parametrize("data", [lf.FixedSamples(5), lf.FreshSamples(5)], ids=repr)
def test_clients_keep_their_classes_whatever_is_drawn(data):
    """NC is of the classes that the problem gives to a client, also of those of which it has no sample."""
    problem = lf.Classes(n_clients=6, n_classes=C, classes_per_client=[1, 2, 3, 4, 1, 2], dim=D)
    holds = problem.truth(0, range(2)).holds
    algorithm = lf.GeneralFLUTE(**COMMON, head_steps=2)
    for step in lf.iterate(algorithm, problem, data=data, n_rounds=4, trials=2, participation=3):
        for t in range(2 if step.number else 0):
            now = round_of(step.batch, t, step.number, None, ref)
            own = [np.flatnonzero(holds[t, i]) for i in now.active]
            B, W = ref.flute_round(step.before.B[t], step.before.W[t], *now.samples, own, step_size=ETA, head_steps=2)
            close(step.after.B[t], B)
            close(step.after.W[t], W)


def test_the_server_moves_heads_only_and_only_those_of_participants(world):
    still, moved = (
        lf.simulate(
            lf.GeneralFLUTE(**COMMON, server_step_size=step), data=world.data(), n_rounds=1, participation=[[0, 1, 3]]
        ).final
        for step in (0.0, 0.2)
    )
    assert np.array_equal(still.B, moved.B)
    assert np.array_equal(still.W[..., -1], moved.W[..., -1])
    went = np.abs(still.W[0] - moved.W[0]).max(axis=(-2, -1)) > 1e-6
    assert np.flatnonzero(went).tolist() == [0, 1, 3]


def test_general_flute_goes_down_the_slope_of_its_whole_loss(world):
    penalties = {"feature_penalty": 0.2, "head_penalty": 0.3, "collapse_penalty": 0.5}
    algorithm = lf.GeneralFLUTE(**COMMON, server_step_size=0.0, init=world.B, **penalties)
    *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=2)
    by_B, B = [], step.before.B[0]
    for i, (X, y) in enumerate(zip(world.X, world.y, strict=True)):
        H, rest = step.before.W[0, i], (sorted({*y}), *penalties.values())
        by_H = slope(lambda H, of=(X, y, B), rest=rest: ref.flute_loss(*of, H, *rest), H)
        by_B.append(slope(lambda B, of=(X, y), H=H, rest=rest: ref.flute_loss(*of, B, H, *rest), B))
        np.testing.assert_allclose((H - step.after.W[0, i]) / ETA, by_H, rtol=0, atol=1e-7)
    np.testing.assert_allclose((B - step.after.B[0]) / ETA, np.mean(by_B, axis=0), rtol=0, atol=1e-7)


def test_the_gradient_of_nc_in_the_loops_is_its_slope():
    for own in ([0, 1, 2, 3], [1, 3], [2]):
        H = normal(C, K, seed=len(own))
        by_hand = slope(lambda H, own=own: ref.nc(H, own), H)
        np.testing.assert_allclose(ref.nc_gradient(H, own), by_hand, rtol=0, atol=1e-8)


# --- reductions ----------------------------------------------------------------------------------------------


def test_general_flute_without_penalties_steps_as_fedper(world):
    plain = {"local_steps": 3, "collapse_penalty": 0.0, "server_step_size": 0.0}
    flute, fedper = lf.GeneralFLUTE(**COMMON, **plain), lf.FedPer(**COMMON, local_steps=3)
    for step in lf.iterate(flute, data=world.data(), n_rounds=3, participation=draw_participants(5, 3, 3)):
        if step.number:
            other = fedper.step(step.before, step.batch, None)
            close(step.after.B, other.B)
            close(step.after.W, other.W)


@pytest.mark.parametrize("local", [{}, {"local_steps": 3}, {"local_epochs": 2, "batch_size": 4}])
def test_the_model_of_fedrod_without_balance_is_that_of_fedavg(world, local):
    """Bit for bit, in minibatches too."""
    one, balanced = (run(lf.FedRoD(**COMMON, balanced=b, init=world.B, **local), world) for b in (False, True))
    other = run(lf.FedAvg(**COMMON, init=world.B, **local), world)
    assert np.array_equal(one.B, other.B)
    assert np.array_equal(one.W, other.W)
    assert np.abs(balanced.W - other.W).max() > 1e-3


def test_the_balance_of_fedrod_is_that_of_all_samples_in_every_minibatch(world):
    algorithm = lf.FedRoD(**COMMON, local_epochs=2, batch_size=4, init=world.B)
    rng = TrialRandom(generators(0, Stream.ALGORITHM, range(1)))
    for step in lf.iterate(algorithm, data=world.data(), n_rounds=3, participation=draw_participants(5, 3, 3)):
        if step.number == 0:
            continue
        orders, models = rng.permutations((3,), 9)[0], []
        for i, order in zip(step.batch.active[0], orders, strict=True):
            X, y, (B, H) = world.X[i], world.y[i], (step.before.B[0], step.before.W[0, 0])
            own = [j for j in order if j < len(y)]
            for cut in 2 * [own[start : start + 4] for start in range(0, len(own), 4)]:
                at = (y[cut], B, H, ref.balanced(y, C))
                by_B, by_H = ref.gradient_of_B(X[cut], *at), ref.gradient(X[cut] @ B, y[cut], H, at[-1])
                B, H = B - ETA * by_B, H - ETA * by_H
            models.append((B, H))
        close(step.after.B[0], np.mean([B for B, _ in models], axis=0))
        close(step.after.W[0, 0], np.mean([H for _, H in models], axis=0))


# --- what classes do not have --------------------------------------------------------------------------------

PROBLEM = lf.Classes(n_clients=4, n_classes=3, classes_per_client=2, dim=5)
RUN = {"data": lf.FixedSamples(6), "n_rounds": 2}
REFUSED = [
    ("heads = ExactHeads", lf.FedRep(**COMMON)),
    ("fine_tune = ExactHeads", lf.FedAvg(**COMMON, fine_tune=lf.ExactHeads())),
    ("personal = ExactHeads", lf.FedRoD(**COMMON, personal=lf.ExactHeads())),
    ("fine_tune = ExactHeads", lf.FedRoD(**COMMON, fine_tune=lf.ExactHeads())),
    ("step_size = None (least squares)", lf.LocalOnly()),
    ("FLUTE", lf.FLUTE(**COMMON)),
    ("FedRepShortcut", lf.FedRepShortcut(**COMMON)),
    ("PooledLeastSquares", lf.PooledLeastSquares()),
    ("Oracle", lf.Oracle(rank=2)),
    ("Personalized", lf.Personalized(base=lf.FedRep(**COMMON, heads=lf.GradientHeads()), ridge=0.1)),
]
INVALID = [
    ("rank = 9 must be at most dim = 5", {"rank": 9}),
    ("init = 'Random'", {"init": "Random"}),
]


@pytest.mark.parametrize(("named", "algorithm"), REFUSED)
def test_least_squares_are_refused_before_the_run(named, algorithm):
    assert_one_line(lambda: lf.simulate(algorithm, PROBLEM, **RUN), [named, "3 classes"])


@pytest.mark.parametrize(("named", "options"), INVALID)
def test_an_invalid_option_of_general_flute_is_named(named, options):
    assert_one_line(lambda: lf.simulate(lf.GeneralFLUTE(**COMMON | options), PROBLEM, **RUN), [named])


def test_general_flute_supports_only_classification():
    problem = lf.SharedRepresentation(n_clients=4, dim=5, rank=2)
    assert_one_line(lambda: lf.simulate(lf.GeneralFLUTE(**COMMON), problem, **RUN), ["GeneralFLUTE", "lf.FLUTE"])


@pytest.mark.parametrize(
    "algorithm",
    [
        lf.FedRep(**COMMON, init="random", heads=lf.GradientHeads()),
        lf.FedRoD(**COMMON),
        lf.LGFedAvg(**COMMON),
        lf.LocalOnly(step_size=0.1),
        lf.GeneralFLUTE(**COMMON),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_new_clients_have_no_closed_form(algorithm):
    result = lf.simulate(algorithm, PROBLEM, **RUN)
    assert_one_line(lambda: result.new_clients([5]), ["new_clients", "supports only"])
    assert_one_line(lambda: result.adapt(normal(2, 4, 5), np.zeros((2, 4))), ["3 classes"])
