"""Variance: of the columns as they are, whatever their unit."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from homophily.baselines import VarianceSelector


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_is_the_variance_of_the_columns_as_given(dtype):
    X = (np.random.RandomState(0).randn(50, 6) * [1, 10, 0.1, 2, 5, 0.01] + [0, 1e3, 0, 5, 0, 0]).astype(dtype)
    selector = VarianceSelector(3).fit(X)
    np.testing.assert_allclose(selector.scores_**2, X.astype(np.float64).var(0), rtol=1e-6)
    np.testing.assert_allclose(selector.scores_**2, StandardScaler().fit(X).var_, rtol=1e-5)
    assert selector.selected_features_.tolist() == [1, 4, 3]


def test_units_matter():
    X = np.random.RandomState(0).randn(20, 2)
    assert VarianceSelector(1).fit(X * [1, 100]).selected_features_.tolist() == [1]
    assert VarianceSelector(1).fit(X * [100, 1]).selected_features_.tolist() == [0]


def test_sparse_counts():
    X = np.random.RandomState(0).poisson([0.1, 3, 0.5], (40, 3)).astype(float)
    np.testing.assert_allclose(VarianceSelector(1).fit(sp.csr_array(X)).scores_, X.std(0), rtol=1e-12)


def test_numbers_whose_squares_no_number_holds():
    X = np.random.RandomState(0).rand(10, 3) * [1e200, 1e-200, 1]
    selector = VarianceSelector(3).fit(X)
    assert selector.selected_features_.tolist() == [0, 2, 1]
    assert np.isfinite(selector.scores_).all()
    assert (selector.scores_ > 0).all()
