import numpy as np
import pytest
import scipy.sparse

import references as ref
from ldsu.kernels import Kernel, check_kernel_matrix, check_magnitude, median_gamma
from ldsu.neighbors import input_neighbors

RNG = np.random.default_rng(0)
X, Y = RNG.random((9, 4)), RNG.random((7, 4))


@pytest.mark.parametrize("name", ["rbf", "laplacian", "chi2", "linear", "poly", "cosine"])
def test_kernel_is_its_formula(name):
    kernel = Kernel(name, gamma=0.7, degree=2, coef0=0.5)
    expected = ref.kernel_matrix(name, X, Y, gamma=0.7, degree=2, coef0=0.5)
    np.testing.assert_allclose(kernel(X, Y), expected, atol=1e-12)
    sparse = kernel(scipy.sparse.csr_array(X), scipy.sparse.csr_array(Y))
    np.testing.assert_allclose(sparse, expected, atol=1e-12)


def test_callable_kernel_gets_rows_and_parameters():
    K = Kernel(lambda x, y, power: float(x @ y) ** power, params={"power": 2})(X, Y)
    np.testing.assert_allclose(K, (X @ Y.T) ** 2)


@pytest.mark.parametrize("name", ["rbf", "laplacian", "chi2", "poly"])
def test_median_rule_is_its_formula(name):
    np.testing.assert_allclose(median_gamma(X, name, 3.0), ref.median_gamma(name, X, 3.0))


def test_median_rule_is_free_of_units():
    np.testing.assert_allclose(median_gamma(10 * X), median_gamma(X) / 100)


def test_median_rule_survives_equal_rows():
    assert median_gamma(np.ones((5, 2)), scale=2.0) == 2.0
    mostly_equal = np.zeros((10, 1))
    mostly_equal[0] = 3.0
    assert median_gamma(mostly_equal) == pytest.approx(1 / (2 * 9 * 9 / 45))


def test_median_rule_beyond_its_sample_is_close_and_repeatable():
    many = RNG.standard_normal((5000, 3))
    assert median_gamma(many) == median_gamma(many)
    distances = ref.squared_distances(many[:300])
    assert median_gamma(many) == pytest.approx(1 / (2 * np.median(distances[np.triu_indices(300, 1)])), rel=0.15)


def test_kernel_check_accepts_rounding_and_names_the_worst_eigenvalue():
    K = X @ X.T
    check_kernel_matrix(K + 1e-14 * RNG.standard_normal(K.shape))
    Q, _ = np.linalg.qr(RNG.standard_normal((9, 9)))
    with pytest.raises(ValueError, match=r"smallest eigenvalue is -0\.25"):
        check_kernel_matrix(Q @ np.diag([-0.25, 1, 1, 1, 1, 1, 1, 1, 2.0]) @ Q.T)
    K[0, 1] += 0.5
    with pytest.raises(ValueError, match=r"not symmetric.*differ by 0\.5"):
        check_kernel_matrix(K)


@pytest.mark.parametrize(("value", "dtype"), [(1e200, np.float64), (1e-200, np.float64), (1e30, np.float32)])
def test_values_whose_squares_leave_the_range_are_refused(value, dtype):
    with pytest.raises(ValueError, match="Rescale the data"):
        check_magnitude(np.full((2, 2), value, dtype=dtype), also_small=True)
    check_magnitude(np.zeros((2, 2), dtype=dtype), also_small=True)
    if value < 1:
        check_magnitude(np.full((2, 2), value, dtype=dtype), also_small=False)


@pytest.mark.parametrize("offset", [1e6, 1.7e9])
def test_an_offset_of_the_columns_does_not_drown_distances(offset):
    rng = np.random.default_rng(0)
    Z = np.round(rng.standard_normal((30, 4)) * 2**10) / 2**10  # so that adding the offset is exact
    np.testing.assert_allclose(Kernel("rbf", 0.3)(Z + offset, Z[:9] + offset), Kernel("rbf", 0.3)(Z, Z[:9]), atol=1e-6)
    assert median_gamma(Z + offset) == pytest.approx(median_gamma(Z), rel=1e-6)
    np.testing.assert_array_equal(input_neighbors(Z + offset, 5)[1], input_neighbors(Z, 5)[1])


def test_single_precision_kernels_are_judged_by_single_precision():
    A = RNG.standard_normal((40, 3)).astype(np.float32)
    K = A @ A.copy().T
    K[0, 1] += 1e-6 * np.abs(K).max()
    kernel = Kernel("precomputed")
    np.testing.assert_array_equal(kernel.train_matrix(K), kernel.train_matrix(K).T)
    with pytest.raises(ValueError, match="not symmetric"):
        kernel.train_matrix(K.astype(np.float64))


@pytest.mark.parametrize("kernel", [Kernel("poly", 1.0, 2000), Kernel("poly", 1e200), Kernel("poly", 1.0, 3, 1e200)])
def test_kernel_parameters_that_overflow_are_named(kernel):
    with pytest.raises(ValueError, match="is NaN or infinite"):
        kernel.train_matrix(10 * X)


def test_kernels_with_array_parameters_can_be_compared():
    def weighted(x, y, w):
        return float(x @ (w * y))

    kernels = [Kernel(weighted, params={"w": np.full(4, value)}) for value in (1.0, 1.0, 2.0)]
    assert kernels[0].key == kernels[1].key
    assert kernels[0].key != kernels[2].key
