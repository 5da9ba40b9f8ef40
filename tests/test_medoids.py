"""Feature medoids against SciPy's clusters and correlations written out."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import AgglomerativeClustering

from homophily.baselines import FeatureMedoids, medoids
from homophily.baselines.medoids import clusters
from homophily.memory import MemoryLimitError


def data(n=50, d=12, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3) @ rng.randn(3, d) + rng.randn(n, d)
    return (X - X.mean(0)) / X.std(0)


def same(a, b):
    """Whether two labellings name the same clusters."""
    return ((a[:, None] == a) == (b[:, None] == b)).all()


@pytest.mark.parametrize("m", [1, 4, 11, 12])
def test_is_the_formula(m):
    X = data()
    rho = np.abs(np.corrcoef(X.T))
    labels = fcluster(linkage(squareform(1 - rho, checks=False), "average"), m, "maxclust")
    selector = FeatureMedoids(m).fit(X)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        within = rho[np.ix_(members, members)]
        (chosen,) = set(members) & set(selector.selected_features_)
        assert np.isclose(within.sum(1).max(), within[members == chosen].sum())
        np.testing.assert_allclose(selector.scores_[chosen], within.sum(1).max(), rtol=1e-5)
        others = members[members != chosen]
        np.testing.assert_allclose(selector.scores_[others], rho[chosen, others], rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_those_of_scikit_learn(seed):
    X = data(30, 25, seed)
    distances = 1 - np.abs(np.corrcoef(X.T))
    for m in (1, 6, 24):
        theirs = AgglomerativeClustering(m, metric="precomputed", linkage="average").fit_predict(distances)
        assert same(clusters(X, m), theirs)


@pytest.mark.parametrize("m", range(1, 13))
def test_there_are_m_clusters_also_of_tied_columns(m):
    """All columns but two are copies or opposites of one: their merges are at the same height."""
    X = data(20, 3)
    X = np.hstack([X, *[X[:, :1], -X[:, :1], X[:, 1:2]] * 3])
    selector = FeatureMedoids(m).fit(X)
    assert len(set(selector.selected_features_)) == m
    if m == 3:
        assert len(np.unique(np.abs(np.corrcoef(X[:, selector.selected_features_].T)).round(6))) > 1


def test_blocks_of_columns_do_not_matter(monkeypatch):
    expected = FeatureMedoids(4).fit(data()).scores_
    monkeypatch.setattr(medoids, "BLOCK", 30)
    np.testing.assert_allclose(FeatureMedoids(4).fit(data()).scores_, expected, rtol=1e-12)


def test_a_large_cluster_comes_first():
    rng = np.random.RandomState(0)
    X = np.c_[rng.randn(40, 1), rng.randn(40, 1) + 0.3 * rng.randn(40, 6)]
    selector = FeatureMedoids(2).fit(X)
    assert selector.selected_features_[1] == 0
    assert selector.scores_[0] == 1
    assert selector.scores_[selector.selected_features_[0]] > 5


def test_more_correlations_than_the_memory_limit_allows(monkeypatch):
    monkeypatch.setattr("homophily.memory.room", lambda: 1000)
    monkeypatch.setattr("homophily.memory._limit", 10**9)
    with pytest.raises(MemoryLimitError, match=r"The correlations of 12 columns would take about 1 MB of memory"):
        FeatureMedoids(2).fit(data())
