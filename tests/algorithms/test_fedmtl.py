"""FedMTL: each half of a round minimises its objective, and where that ends."""

import numpy as np
import pytest

import linfed as lf


def objective(algorithm, A, b, Theta, Omega):
    """Return FedMTL's objective, without its constants."""
    inverse = np.linalg.inv(Omega)
    losses = sum(0.5 * theta @ M @ theta - c @ theta for M, c, theta in zip(A, b, Theta, strict=True))
    product = Theta @ inverse @ Theta.T if algorithm.relation == "features" else Theta.T @ inverse @ Theta
    return losses + algorithm.penalty * (np.trace(product) + algorithm.epsilon * np.trace(inverse))


@pytest.mark.parametrize("participation", [1.0, 2])
@pytest.mark.parametrize("relation", ["features", "tasks"])
def test_fedmtl_minimises_its_objective_in_turn(world, normal, relation, participation):
    (A, b), algorithm = normal, lf.FedMTL(penalty=0.05, relation=relation, epsilon=0.01)
    last = np.inf
    for step in lf.iterate(algorithm, data=world.data(), n_rounds=12, participation=participation):
        if step.number == 0:
            continue
        (active,), Omega, Theta = step.batch.active, step.before.Omega[0], step.after.S[0]
        inverse = np.linalg.inv(Omega)
        pull = Theta @ inverse if relation == "features" else inverse @ Theta
        slopes = np.array([M @ theta - c for M, c, theta in zip(A, b, Theta, strict=True)]) + 2 * 0.05 * pull
        np.testing.assert_allclose(slopes[active], 0.0, rtol=0, atol=1e-12)
        others = np.setdiff1d(np.arange(4), active)
        np.testing.assert_array_equal(Theta[others], step.before.S[0][others])
        for relations in (Omega, step.after.Omega[0]):
            value = objective(algorithm, A, b, Theta, relations)
            assert value <= last + 1e-12
            last = value
        Gram = Theta.T @ Theta if relation == "features" else Theta @ Theta.T
        new = step.after.Omega[0]
        assert np.trace(new) == pytest.approx(1.0, abs=1e-14)
        scaled = new @ new * np.trace(Gram + 0.01 * np.eye(len(Gram))) / np.trace(new @ new)
        np.testing.assert_allclose(scaled, Gram + 0.01 * np.eye(len(Gram)), rtol=0, atol=1e-12)


@pytest.mark.long
def test_fedmtl_ends_at_the_squared_nuclear_norm(world, normal):
    """The gradient of the losses plus that of ``lambda (tr (Theta'Theta + eps I)^(1/2))^2`` vanishes."""
    (A, b), eps, penalty = normal, 0.01, 0.05
    final = lf.simulate(lf.FedMTL(penalty=penalty, epsilon=eps), data=world.data(), n_rounds=3000, metrics=[]).final
    Theta = final.S[0]
    values, vectors = np.linalg.eigh(Theta.T @ Theta + eps * np.eye(3))
    root = np.sqrt(values)
    penalty = 2.0 * penalty * root.sum() * Theta @ (vectors / root) @ vectors.T
    slopes = np.array([M @ theta - c for M, c, theta in zip(A, b, Theta, strict=True)]) + penalty
    np.testing.assert_allclose(slopes, 0.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        penalty
        * (np.trace(Theta @ np.linalg.inv(final.Omega[0]) @ Theta.T) + eps * np.trace(np.linalg.inv(final.Omega[0]))),
        penalty * root.sum() ** 2,
        rtol=1e-10,
    )


def test_fedmtl_without_epsilon_keeps_directions_that_no_model_uses():
    """With m < d and one client, a singular relation is still served."""
    X, y = np.eye(3)[None, :2], np.array([[1.0, 2.0]])
    final = lf.simulate(
        lf.FedMTL(penalty=0.01, epsilon=0.0), data=lf.GivenSamples(X, y), n_rounds=50, metrics=["train_loss"]
    ).final
    assert np.isfinite(final.S).all()
    assert abs(final.S[0, 0, 2]) < 1e-12
    np.testing.assert_allclose(np.linalg.eigvalsh(final.Omega[0])[:2], 0.0, rtol=0, atol=1e-12)


def test_fedmtl_starts_from_relations_of_trace_1(world):
    for relation, size in (("features", 3), ("tasks", 4)):
        first = next(lf.iterate(lf.FedMTL(penalty=0.1, relation=relation), data=world.data(), n_rounds=1)).after
        np.testing.assert_array_equal(first.Omega, [np.eye(size) / size])


def test_models_of_0_leave_the_relation_of_fedmtl(world):
    data = lf.GivenSamples(np.array(world.X), np.zeros((4, 9)))
    final = lf.simulate(lf.FedMTL(penalty=0.1, epsilon=0.0), data=data, n_rounds=3, metrics=["train_loss"]).final
    assert not final.S.any()
    np.testing.assert_array_equal(final.Omega, [np.eye(3) / 3])


def test_new_clients_are_fitted_at_the_relation_of_features(world, normal):
    """Here the training clients once more, as if they were new."""
    (A, b), algorithm = normal, lf.FedMTL(penalty=0.05)
    *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=4)
    inverse = np.linalg.inv(step.after.Omega[0])
    wanted = [np.linalg.solve(M + 0.1 * inverse, c) for M, c in zip(A, b, strict=True)]
    np.testing.assert_allclose(algorithm.adapt(step.after, step.batch).S[0], wanted, rtol=1e-9, atol=1e-9)
    of_tasks = lf.FedMTL(penalty=0.05, relation="tasks")
    with pytest.raises(ValueError, match="learns nothing that new clients can use"):
        of_tasks.adapt(step.after, step.batch)
