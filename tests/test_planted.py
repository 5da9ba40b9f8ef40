"""Planted clusters: where the answer is, and that nothing else tells them apart."""

import numpy as np
import pytest
from sklearn.feature_selection import f_classif

from homophily.datasets import make_planted


def test_planted_columns_alone_tell_the_clusters_apart():
    X, y, planted = make_planted(2000, 40, 6, spacing=1.0, random_state=0)
    strength, _ = f_classif(X, y)
    assert planted.tolist() == np.sort(strength.argsort()[-6:]).tolist()
    noise = np.setdiff1d(np.arange(40), planted)
    np.testing.assert_allclose(X[:, noise].std(0), 1, atol=0.08)
    assert strength[noise].max() < 6 < 200 < strength[planted].min()


@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_centres_are_equally_spaced_in_an_order_of_each_column(n_clusters):
    X, y, planted = make_planted(20_000, 6, 5, n_clusters=n_clusters, spacing=2.5, random_state=1)
    means = np.stack([X[y == label][:, planted].mean(0) for label in range(n_clusters)])
    expected = (np.arange(n_clusters) - (n_clusters - 1) / 2) * 2.5
    np.testing.assert_allclose(np.sort(means, axis=0), np.tile(expected[:, None], 5), atol=0.1)
    assert n_clusters == 2 or len(np.unique(means.argsort(0), axis=1).T) > 1


def test_a_seed_draws_the_same_data():
    for one, other in zip(make_planted(random_state=3), make_planted(random_state=3), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(make_planted(random_state=3)[0], make_planted(random_state=4)[0])


@pytest.mark.parametrize("n_planted", [0, 61])
def test_impossible_numbers_are_refused(n_planted):
    with pytest.raises(ValueError, match=rf"n_planted={n_planted} must lie between 1 and n_features=60"):
        make_planted(n_planted=n_planted)
