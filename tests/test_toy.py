"""Toy data as the paper's appendix describes them."""

import numpy as np
import pytest

from homophily.datasets import TOY_NAMES, make_toy


@pytest.mark.parametrize("name", TOY_NAMES)
def test_shape_noise_and_seed(name):
    X, y = make_toy(name, random_state=0)
    assert X.shape == (200, 20)
    assert sorted(np.unique(y)) == [0, 1]
    assert abs(X[:, 2:].mean()) < 0.05
    assert abs(X[:, 2:].std() - 1) < 0.05
    again, _ = make_toy(name.upper(), random_state=0)
    np.testing.assert_array_equal(X, again)
    assert not np.array_equal(X, make_toy(name, random_state=1)[0])
    assert make_toy(name, n_samples=50, n_noise=3, random_state=0)[0].shape == (50, 5)


def test_circles_have_two_radii_with_noise_of_a_tenth():
    X, y = make_toy("circles", n_samples=2000, random_state=0)
    radius = np.hypot(X[:, 0], X[:, 1])
    assert radius[y == 0].mean() == pytest.approx(1.0, abs=0.02)
    assert radius[y == 1].mean() == pytest.approx(0.5, abs=0.02)
    assert radius[y == 0].std() == pytest.approx(0.1, abs=0.01)


def test_blobs_have_a_spread_of_a_tenth():
    X, y = make_toy("blobs", n_samples=2000, random_state=0)
    assert X[y == 0, :2].std(0) == pytest.approx([0.1, 0.1], abs=0.01)


def test_unknown_name():
    with pytest.raises(ValueError, match="one of blobs, moons, circles, got 'spirals'"):
        make_toy("spirals")
