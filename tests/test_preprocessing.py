"""Standardisation against scikit-learn, at any scale."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from homophily.preprocessing import standardize


def test_equals_standard_scaler():
    X = np.random.RandomState(0).randn(50, 6) * [1, 10, 1e-3, 5, 2, 1] + 3
    data = standardize(X)
    np.testing.assert_allclose(data.values, StandardScaler().fit_transform(X), atol=1e-5)
    assert data.values.dtype == np.float32
    assert data.kept.tolist() == list(range(6))


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
@pytest.mark.parametrize("offset", [0, 1000])
def test_any_scale(scale, offset):
    X = np.random.RandomState(0).randn(50, 3) + offset
    np.testing.assert_allclose(standardize(X * scale).values, standardize(X).values, atol=1e-5)


def test_constants_are_left_out_and_blocks_do_not_matter(monkeypatch):
    X = np.random.RandomState(0).randn(30, 10)
    X[:, [2, 7]] = 0.3
    X[:, 9] = 0
    whole = standardize(X)
    assert whole.kept.tolist() == [0, 1, 3, 4, 5, 6, 8]
    assert whole.dropped.tolist() == [2, 7, 9]
    monkeypatch.setattr("homophily.preprocessing.BLOCK", 61)
    monkeypatch.setattr("homophily.sources.BLOCK", 61)
    np.testing.assert_allclose(standardize(X).values, whole.values, rtol=1e-6)
    assert standardize(X).dropped.tolist() == [2, 7, 9]


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
def test_sparse_equals_dense(make):
    X = np.random.RandomState(0).poisson(0.3, (40, 12)).astype(float)
    np.testing.assert_array_equal(standardize(make(X)).values, standardize(X).values)


def test_float32_rounding_is_constant():
    X = np.random.RandomState(0).randn(30, 2).astype(np.float32)
    X[:, 1] = np.float32(0.1)
    X[::2, 1] = np.nextafter(np.float32(0.1), np.float32(1))
    assert standardize(X).kept.tolist() == [0]
