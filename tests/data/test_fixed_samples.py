"""Fixed samples of a problem."""

import linfed as lf


def test_one_sample_of_one_client_has_its_label_in_any_number_of_trials():
    """NumPy's einsum sums a single column in another order than several."""
    for rank in (1, 3, 5, 8):
        problem = lf.SharedRepresentation(n_clients=1, dim=9, rank=rank, noise_std=0.1)
        for seed in range(8):
            labels = {lf.FixedSamples(1).draw(problem, trials=trials, seed=seed).y[0].tobytes() for trials in (1, 2, 3)}
            assert len(labels) == 1
