"""Unique Feature Selector: Eq. (4), Appendix S2 and Proposition 3.1."""

import pytest
import torch
from torch.autograd import gradcheck

from homophily.nn import UniqueFeatureSelector, algorithm_1, gumbel_softmax, orthogonalize
from homophily.nn.feature_selector import gumbel_like, project

F64 = torch.float64


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(7, 3), (5, 5), (2, 9, 4)])
def test_proposition_3_1(shape):
    """Algorithm 1 gives a column-orthogonal matrix for any real matrix, even a rank-one one."""
    for F_hat in (torch.randn(shape, dtype=F64, generator=rng()), torch.ones(shape, dtype=F64)):
        F = algorithm_1(F_hat, 1e-4)
        eye = torch.eye(shape[-1], dtype=F64).expand(*shape[:-2], -1, -1)
        assert F.shape == F_hat.shape
        torch.testing.assert_close(F.mT @ F, eye, atol=1e-9, rtol=0)
        assert not F[..., shape[-1] :, :].any()  # the zero rows of line 4


@pytest.mark.parametrize("epsilon", [1e-1, 1e-3, 1e-6])
def test_orthogonalize_is_an_epsilon_approximation(epsilon):
    """Appendix S2: F'F = I - eps L^-1 L^-T, with L recomputed here."""
    F_hat = torch.rand(20, 6, dtype=F64, generator=rng()).softmax(0)
    F = orthogonalize(F_hat, epsilon)
    L_inv = torch.linalg.inv(torch.linalg.cholesky(F_hat.T @ F_hat + epsilon * torch.eye(6, dtype=F64)))
    torch.testing.assert_close(F.T @ F, torch.eye(6, dtype=F64) - epsilon * L_inv @ L_inv.T, atol=1e-8, rtol=0)
    torch.testing.assert_close(F, F_hat @ L_inv.T, atol=1e-8, rtol=0)


def test_orthogonalize_keeps_distinct_one_hot_columns():
    F_hat = torch.eye(10, dtype=F64)[:, [7, 2, 5]]
    torch.testing.assert_close(orthogonalize(F_hat, 1e-12), F_hat)


def test_orthogonalize_separates_copies():
    """Two columns on the same feature: the second is pushed off it, and keeps r / sqrt(r^2 + epsilon) of its norm."""
    F_hat = torch.zeros(6, 2)
    F_hat[1] = 1
    F_hat[4, 1] = r = 1e-3
    for epsilon in (1e-10, 1e-6, 1e-4):
        F = orthogonalize(F_hat, epsilon)
        torch.testing.assert_close(F[:, 0], F_hat[:, 0], atol=1e-4, rtol=0)
        assert F[4, 1] == pytest.approx(r / (r**2 + 2 * epsilon) ** 0.5, rel=1e-2)
        assert F[1, 1].abs() < 0.2


def test_a_repeated_feature_is_not_rewarded_with_a_vanishing_column():
    F_hat = torch.full((100, 2), 1e-6)
    F_hat[3] = 1
    F_hat[7, 1] = 1e-3
    assert orthogonalize(F_hat)[:, 1].norm() > 0.99


@pytest.mark.parametrize("epsilon", [1e-6, 1e-30])
def test_orthogonalize_survives_rank_one(epsilon):
    F_hat = torch.full((50, 10), 1 / 50, requires_grad=True)
    F = orthogonalize(F_hat, epsilon)
    F.square().sum().backward()
    assert torch.isfinite(F).all()
    assert torch.isfinite(F_hat.grad).all()


def test_the_ridge_grows_no_more_than_it_must():
    """A copy leaves nothing to divide by. That must cost the other columns nothing, nor the other graphs of a batch."""
    copied = torch.zeros(5, 3, dtype=F64)
    copied[1, :2] = 1
    copied[4, 2] = 1
    distinct = torch.eye(5, dtype=F64)[:, :3]
    F = orthogonalize(torch.stack([distinct, copied]), 1e-30)
    torch.testing.assert_close(F[0], distinct, atol=1e-9, rtol=0)
    torch.testing.assert_close(F[1, :, [0, 2]], copied[:, [0, 2]], atol=1e-9, rtol=0)
    assert F[1, :, 1].norm() < 1e-5


def test_orthogonalize_gradcheck():
    F_hat = torch.rand(2, 6, 3, dtype=F64, generator=rng()).requires_grad_()
    assert gradcheck(lambda f: orthogonalize(f, 1e-3), F_hat)


def test_gumbel_softmax_is_equation_4():
    logits = torch.randn(8, 3, dtype=F64, generator=rng())
    noise = torch.randn(8, 3, dtype=F64, generator=rng(1))
    expected = ((logits + noise) / 0.7).exp()
    torch.testing.assert_close(gumbel_softmax(logits, 0.7, noise), expected / expected.sum(0))


def test_draws_follow_the_learned_distribution():
    """The largest entry of logits + Gumbel noise is a sample of softmax(logits)."""
    selector = UniqueFeatureSelector(4, 1, unique=False)
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    with torch.no_grad():
        selector.logits.copy_(p.log()[:, None])
    generator = rng()
    counts = torch.zeros(4)
    for _ in range(4000):
        counts[selector(0.5, generator).argmax()] += 1
    torch.testing.assert_close(counts / 4000, p, atol=0.03, rtol=0)
    torch.testing.assert_close(selector.probabilities[:, 0], p)


@pytest.mark.parametrize("init_std", [None, 2.0])
def test_logits_start_as_small_normal_numbers_of_the_generator(init_std):
    """0.01 unless another deviation is asked for, in the precision and from the generator that are given."""
    options = {} if init_std is None else {"init_std": init_std}

    def logits(seed):
        return UniqueFeatureSelector(500, 40, generator=rng(seed), dtype=F64, **options).logits.detach()

    expected = init_std or 0.01
    assert logits(0).dtype == F64
    assert torch.equal(logits(0), logits(0))
    assert not torch.equal(logits(0), logits(1))
    assert logits(0).mean().abs() < 0.05 * expected
    assert logits(0).std() == pytest.approx(expected, rel=0.05)
    assert (logits(0).abs() < 2 * expected).double().mean() == pytest.approx(0.954, abs=0.01)  # normal, not uniform


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize(("n", "n_restarts"), [(4, None), (9, None), (4, 3), (9, 3)])
def test_projected_points_are_those_of_the_same_draw(unique, n, n_restarts):
    """Fewer samples than features and more; noise comes from the generator alone."""
    selector = UniqueFeatureSelector(
        6, 3, n_restarts=n_restarts, unique=unique, init_std=1.0, generator=rng(), dtype=F64
    )
    X = torch.randn(n, 6, dtype=F64, generator=rng(1))
    F = selector(0.5, rng(2))
    assert torch.equal(F, selector(0.5, rng(2)))
    assert not torch.equal(F, selector(0.5, rng(3)))
    torch.testing.assert_close(selector.project(X, 0.5, rng(2)), X @ F)
    overlaps = (F.mT @ F - torch.eye(3, dtype=F64)).abs().amax()
    assert overlaps < 1e-6 if unique else overlaps > 0.1


@pytest.mark.parametrize("n_restarts", [None, 4])
def test_probabilities_and_confidence_of_every_restart(n_restarts):
    """Against sums written out, with logits so far apart that their exponentials overflow."""
    selector = UniqueFeatureSelector(7, 3, n_restarts=n_restarts, init_std=1.0, generator=rng(), dtype=F64)
    p = selector.logits.detach().exp()
    p = p / p.sum(-2, keepdim=True)
    torch.testing.assert_close(selector.probabilities, p)
    torch.testing.assert_close(selector.confidence, p.max(-2).values.mean(-1))
    torch.testing.assert_close(selector.eval()(1.0), orthogonalize(p))
    with torch.no_grad():
        selector.logits.mul_(1e5)
    torch.testing.assert_close(selector.confidence, torch.ones(selector.confidence.shape, dtype=F64))


def test_printed_selector_says_its_sizes():
    assert str(UniqueFeatureSelector(7, 3)) == "UniqueFeatureSelector(7, 3, epsilon=1e-10, unique=True)"
    text = str(UniqueFeatureSelector(7, 3, n_restarts=2, epsilon=1e-3, unique=False))
    assert text == "UniqueFeatureSelector(7, 3, epsilon=0.001, unique=False, n_restarts=2)"


def test_low_temperature_is_one_hot_and_high_is_uniform():
    selector = UniqueFeatureSelector(30, 5, unique=False, generator=rng())
    assert selector(1e-3, rng()).amax(0).min() > 0.999
    assert selector(1e3, rng()).amax(0).max() < 0.05


def test_restarts_are_independent_and_batched():
    selector = UniqueFeatureSelector(12, 3, n_restarts=4, generator=rng())
    F = selector(1.0, rng())
    assert selector.logits.shape == F.shape == (4, 12, 3)
    torch.testing.assert_close(F.mT @ F, torch.eye(3).expand(4, 3, 3), atol=1e-3, rtol=0)
    (grad,) = torch.autograd.grad(F[0].square()[0].sum(), selector.logits)
    assert grad[0].any()
    assert not grad[1:].any()


def test_evaluation_mode_adds_no_noise():
    selector = UniqueFeatureSelector(12, 3, generator=rng()).eval()
    assert torch.equal(selector(0.5), selector(0.5))


def test_temperature_must_be_positive():
    with pytest.raises(ValueError, match="temperature must be positive"):
        UniqueFeatureSelector(3, 2)(0.0)


@pytest.mark.parametrize("m", [0, 4])
def test_m_beyond_d_is_refused(m):
    with pytest.raises(ValueError, match=f"between 1 and d=3 .* got m={m}"):
        UniqueFeatureSelector(3, m)


@pytest.mark.parametrize("m", [1, 3])
def test_from_one_feature_to_all(m):
    F = UniqueFeatureSelector(3, m, init_std=1.0, generator=rng(), dtype=F64).eval()(1.0)
    torch.testing.assert_close(F.mT @ F, torch.eye(m, dtype=F64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n", [4, 9])
def test_project_gradcheck(n):
    """Either way round: fewer samples than features, and more."""
    X = torch.randn(n, 6, dtype=F64, generator=rng(1))
    F_hat = torch.rand(2, 6, 3, dtype=F64, generator=rng()).requires_grad_()
    torch.testing.assert_close(project(X, F_hat, 1e-3), X @ orthogonalize(F_hat, 1e-3))
    torch.testing.assert_close(project(X, F_hat), X @ orthogonalize(F_hat))
    assert gradcheck(lambda f: project(X, f, 1e-3), F_hat)


def test_gradient_of_orthogonalize_equals_autograd_through_the_cholesky_factor():
    F_hat = torch.rand(40, 5, dtype=F64, generator=rng()).softmax(0).requires_grad_()
    weights = torch.randn(40, 5, dtype=F64, generator=rng(1))
    L = torch.linalg.cholesky(F_hat.T @ F_hat + 1e-3 * torch.eye(5, dtype=F64))
    (expected,) = torch.autograd.grad((weights * torch.linalg.solve_triangular(L, F_hat.T, upper=False).T).sum(), F_hat)
    (found,) = torch.autograd.grad((weights * orthogonalize(F_hat, 1e-3)).sum(), F_hat)
    torch.testing.assert_close(found, expected)


def test_noise_is_gumbel_and_never_infinite_upwards():
    noise = gumbel_like(torch.empty(200_000), rng())
    assert noise.max() < 20
    probe = torch.tensor([-1.0, 0.0, 1.0, 3.0])
    below = (noise[:, None] <= probe).double().mean(0)
    torch.testing.assert_close(below, (-(-probe.double()).exp()).exp(), atol=5e-3, rtol=0)
    assert gumbel_softmax(torch.zeros(3, 1), 0.1, torch.tensor([[-torch.inf], [0.0], [0.0]])).tolist() == [
        [0.0],
        [0.5],
        [0.5],
    ]
