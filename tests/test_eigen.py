"""Largest eigenvectors: none is missed, and they are the same every time."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import block_diag, eigh

from homophily import eigen
from homophily.eigen import eigenvectors, lanczos, largest_eigenvectors


def separate_parts(sizes, seed=0):
    """Normalised similarities of a graph in parts: each has the eigenvalue 1."""
    rng = np.random.RandomState(seed)
    S = block_diag(*(rng.uniform(size=(size, size)) for size in sizes))
    S = S + S.T
    scale = S.sum(1) ** -0.5
    return sp.csr_array(S * scale[:, None] * scale)


@pytest.mark.parametrize("sizes", [(5,) * 9, (3, 4, 5, 6, 7, 8, 9), (30,) * 4, (40,)])
@pytest.mark.parametrize("more", [-1, 0, 2])
def test_eigenvalues_that_several_vectors_share_are_all_found(sizes, more):
    A = separate_parts(sizes)
    k = max(1, len(sizes) + more)
    V = largest_eigenvectors(A, k, np.random.RandomState(0).normal(size=sum(sizes)))
    values, vectors = np.linalg.eigh(A.toarray())
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-10)
    np.testing.assert_allclose(np.linalg.eigvalsh(V.T @ (A @ V)), values[-k:], atol=1e-10)
    if more == 0:  # all that have the eigenvalue 1, in whatever basis
        np.testing.assert_allclose(V @ V.T, vectors[:, -k:] @ vectors[:, -k:].T, atol=1e-8)


@pytest.mark.parametrize("function", [lambda *given: lanczos(*given)[1], largest_eigenvectors])
def test_the_same_every_time(function):
    """Of a matrix of so few different eigenvalues that the search has to begin anew, with another vector."""
    A = sp.csr_array(block_diag(*(np.full((size, size), 1 / size) for size in (6, 8))))
    start = np.random.RandomState(0).normal(size=14)
    first = function(A, 2, start)
    for _ in range(20):
        np.testing.assert_array_equal(function(A, 2, start), first)


@pytest.mark.parametrize("fails", [False, True])
def test_some_of_all_eigenvectors(fails, monkeypatch):
    """Also where LAPACK's fast way fails, as it does over a few matrices."""
    A = np.random.RandomState(0).normal(size=(9, 9))
    A = A + A.T

    def fail(A, **options):
        if "subset_by_index" in options:
            raise np.linalg.LinAlgError("Internal Error.")
        return eigh(A, **options)

    if fails:
        monkeypatch.setattr(eigen, "eigh", fail)
    V = eigenvectors(A, 2, 5)
    values, vectors = np.linalg.eigh(A)
    np.testing.assert_allclose(A @ V, V * values[2:5], atol=1e-12)
    np.testing.assert_allclose(abs(np.sum(V * vectors[:, 2:5], 0)), 1)
