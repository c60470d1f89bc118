import math

import numpy as np
import pytest
import torch

from fupareto.pareto import Array, combine, gram, min_norm, project_out
from fupareto.pareto.gram import chunk_size

from .wolfe import wolfe


def random_rows(m: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(m, n, generator=torch.Generator().manual_seed(seed))


def near_collinear(m: int = 6, n: int = 40_000) -> torch.Tensor:
    """Clients that differ from each other in the fourth digit: their Gram matrix, in the eighth and on."""
    return random_rows(1, n, seed=1) + 1e-4 * random_rows(m, n, seed=2)


def test_is_the_matrix_of_inner_products() -> None:
    rows = random_rows(3, 501)
    result = gram(rows, chunk=100)
    assert result.dtype == np.float64
    for i in range(3):
        for j in range(3):
            exact = math.fsum(float(a) * float(b) for a, b in zip(rows[i], rows[j], strict=True))
            assert result[i, j] == pytest.approx(exact, abs=1e-11)


@pytest.mark.parametrize("chunk", [1, 7, 1000, 2**15, 10**9])
def test_chunk_size_does_not_matter(chunk: int) -> None:
    rows = random_rows(5, 1001)
    exact = rows.double().numpy() @ rows.double().numpy().T
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    assert (np.abs(gram(rows, chunk) - exact) <= 1e-12 * scale).all()
    coefficients = np.linspace(-1, 1, 5)
    torch.testing.assert_close(combine(coefficients, rows, chunk), combine(coefficients, rows), rtol=1e-6, atol=0)


@pytest.mark.parametrize("m", [1, 2, 17, 64])
def test_is_exactly_symmetric(m: int) -> None:
    result = gram(random_rows(m, 5000), chunk=777)
    assert (result == result.T).all()


def test_leaves_the_gradients_alone() -> None:
    rows = random_rows(3, 10).requires_grad_()
    before = rows.detach().clone()
    gram(rows)
    assert not combine(np.ones(3), rows).requires_grad
    assert torch.equal(rows.detach(), before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_gradients_are_refused_by_row(bad: float) -> None:
    rows = random_rows(5, 100)
    rows[1, 99] = rows[4, 0] = bad
    with pytest.raises(ValueError, match=r"rows \[1, 4\]"):
        gram(rows, chunk=32)


def test_largest_float32_values_are_not_taken_for_infinite() -> None:
    rows = torch.full((2, 8), torch.finfo(torch.float32).max)
    assert np.isfinite(gram(rows)).all()


def test_a_vector_is_not_a_set_of_gradients() -> None:
    with pytest.raises(ValueError, match="clients, parameters"):
        gram(torch.ones(5))


def test_combine_is_the_float64_product_rounded_once() -> None:
    rows = random_rows(6, 4000)
    coefficients = np.array([1e8, 1.0, 0.0, -3.0, 0.5, -1e8])
    rows[5] = rows[0]
    expected = (coefficients @ rows.double().numpy()).astype(np.float32)
    result = combine(coefficients, rows, chunk=512)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_combine_wants_one_coefficient_per_gradient() -> None:
    for wrong in (np.ones(2), np.ones(4), np.ones((3, 1))):
        with pytest.raises(ValueError, match="one per gradient"):
            combine(wrong, random_rows(3, 10))


def test_near_collinear_float32_gradients_give_the_right_direction() -> None:
    rows = near_collinear()
    vectors = rows.double().numpy()
    expected = wolfe(vectors)

    def error(matrix: Array) -> float:
        return float(np.abs(min_norm(matrix) - expected).max())

    assert error(gram(rows)) < 1e-6
    assert error((rows @ rows.T).double().numpy()) > 1e-2


def test_near_collinear_float32_gradients_are_projected_right() -> None:
    rows = near_collinear()
    vectors = rows.double().numpy()

    def leak(matrix: Array) -> float:
        (coefficients,) = project_out(matrix, targets=[0], span=range(1, len(rows)))
        left = coefficients @ vectors
        return float(np.abs(vectors[1:] @ left).max() / np.linalg.norm(left) / np.linalg.norm(vectors[1]))

    assert leak(gram(rows)) < 1e-7
    assert leak((rows @ rows.T).double().numpy()) > 1e-4


# Blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, 7, 1000])
def test_blocks_are_the_rows_one_below_the_other(chunk: int | None) -> None:
    rows = random_rows(7, 2001)
    blocks = (rows[:4], rows[4:6], rows[6:])
    assert (gram(blocks, chunk) == gram(rows, chunk)).all()
    coefficients = np.linspace(-1, 1, 7)
    assert torch.equal(combine(coefficients, blocks, chunk), combine(coefficients, rows, chunk))


def test_blocks_of_different_width_are_refused() -> None:
    with pytest.raises(ValueError, match="clients, parameters"):
        gram((torch.ones(2, 5), torch.ones(2, 6)))


def test_a_chunk_has_a_limit_in_bytes() -> None:
    assert {chunk_size(m) for m in (0, 1, 50, 1024)} == {2**15}
    for m in (1025, 10_000, 10**6, 10**9):
        assert 8 * m * chunk_size(m) <= max(2**28, 8 * m)
