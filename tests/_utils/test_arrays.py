"""One algorithm on NumPy and on PyTorch: the same numbers, and clear words where a device is not there."""

import pickle
import sys

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits

from conftest import few_labels
from ldsu import LDSU, LDSUClassifier, Problem
from ldsu._utils.arrays import CPU, arrays_on
from ldsu.solvers import FILTERS
from ldsu.solvers._sparse_plan import device_memory

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

NAMES = ("rbf", "laplacian", "linear", "poly", "cosine", "chi2", "precomputed", "callable")


def inverse_distance(x, y):
    return 1 / (1 + np.sum((x - y) ** 2))


def data(kernel, dtype="float64"):
    """Training samples, new samples and the kernel parameter, for a kernel by name."""
    X, new = some_digits()[0][:150], some_digits()[0][150:]
    X, new = X.astype(dtype), new.astype(dtype)
    if kernel == "chi2":
        return np.abs(X), np.abs(new), kernel
    if kernel == "precomputed":
        return X @ X.T + 1, new @ X.T + 1, kernel
    return X, new, inverse_distance if kernel == "callable" else kernel


def some_digits():
    X, y = load_digits(return_X_y=True)
    noise = np.random.default_rng(0).standard_normal((180, 64))
    return X[:180] / 16 + 1e-3 * noise, few_labels(y[:150], 3)


def assert_same_features(a, b, tolerance=1e-8):
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert np.abs(a - b).max() <= tolerance * np.abs(a).max()


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("filter_name", FILTERS)
def test_exact_solver_gives_the_same_features_on_both(filter_name, kernel):
    X, new, kernel = data(kernel)
    y = some_digits()[1]
    model = LDSU(filter=filter_name, kernel=kernel, solver="exact")
    cpu, other = model.fit(X, y), clone(model).set_params(device="torch").fit(X, y)
    assert isinstance(other.coef_, np.ndarray)
    np.testing.assert_allclose(other.eigenvalues_, cpu.eigenvalues_, rtol=1e-6, atol=1e-9 * cpu.eigenvalues_.max())
    assert_same_features(cpu.transform(X), other.transform(X))
    assert_same_features(cpu.transform(new), other.transform(new))


@pytest.mark.parametrize("filter_name", FILTERS)
def test_single_precision_samples_give_the_same_single_precision_features(filter_name):
    X, new, _ = data("rbf", "float32")
    y = some_digits()[1]
    cpu, other = (LDSU(filter=filter_name, solver="exact", device=device).fit(X, y) for device in ("cpu", "torch"))
    assert_same_features(cpu.coef_, other.coef_)  # computed in double precision
    assert other.transform(new).dtype == np.float32
    assert_same_features(cpu.transform(new), other.transform(new), 1e-6)


@pytest.mark.parametrize(
    "parameters",
    [
        {"clique_size": 1},
        {"lam": 0.0},
        {"cliques": "kernel", "filter": "truncate"},
        {"scaling": "absolute", "theta": 1.0, "strength": 1.0, "filter": "heat"},
        {"min_anchors": 80},
        {"n_components": 7, "filter": "truncate"},
    ],
)
@pytest.mark.parametrize("labels", ["few", "none"])
def test_other_parameters_give_the_same_features_on_both(parameters, labels):
    X, _, _ = data("rbf")
    y = some_digits()[1] if labels == "few" else None
    cpu, other = (LDSU(solver="exact", device=device, **parameters).fit(X, y) for device in ("cpu", "torch"))
    A, B = cpu.transform(X), other.transform(X)
    assert A.shape == B.shape
    # Inner products: without a graph every direction is as good as any.
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-8 * np.abs(A @ A.T).max())


@pytest.mark.parametrize("kernel", ["rbf", "linear", "cosine", "poly"])
def test_sparse_samples_give_the_same_features_on_both(kernel):
    X, new, _ = data(kernel)
    X, new = (scipy.sparse.csr_array(np.where(np.abs(Z) < 0.3, 0, Z)) for Z in (X, new))
    cpu, other = (LDSU(kernel=kernel, device=device).fit(X, some_digits()[1]) for device in ("cpu", "torch"))
    assert_same_features(cpu.transform(new), other.transform(new))


def test_a_problem_is_reused_on_its_device():
    X, _, _ = data("rbf")
    y = some_digits()[1]
    problem = Problem(X, device="torch")
    for filter_name in FILTERS:
        cpu, other = (LDSU(filter=filter_name, device=device) for device in ("cpu", "torch"))
        for labels in (y, np.where(np.arange(y.size) % 2, y, -1)):
            assert_same_features(cpu.fit(X, labels).transform(X), other.fit(X, labels, problem=problem).transform(X))
    with pytest.raises(ValueError, match=r"problem is on device 'torch', but the estimator on 'cpu'"):
        LDSU().fit(X, y, problem=problem)


def test_where_one_solve_loses_accuracy_both_use_the_spectral_algorithm():
    X, _, _ = data("linear")
    y = some_digits()[1]
    cpu, other = (LDSU(kernel="linear", strength=1e9, device=device).fit(X, y) for device in ("cpu", "torch"))
    assert ("decompose kernel" in cpu.timings_) == ("decompose kernel" in other.timings_)
    A, B = cpu.transform(X), other.transform(X)
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-6 * np.abs(A @ A.T).max())


def test_samples_are_not_changed():
    for kernel in NAMES:
        X, _, name = data(kernel)
        before = X.copy()
        X.setflags(write=False)
        LDSU(kernel=name, filter="truncate", device="torch").fit(X, some_digits()[1]).transform(X)
        np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_a_fitted_model_can_be_pickled(solver):
    X, new, _ = data("rbf")
    model = LDSU(solver=solver, device="torch").fit(X, some_digits()[1])
    written = pickle.dumps(model)
    assert b"torch" not in written.replace(b"\x05torch", b"")  # its name, as a parameter, and nothing of PyTorch's
    np.testing.assert_array_equal(pickle.loads(written).transform(new), model.transform(new))


@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_a_device_that_is_not_there_is_named(solver):
    X, _, _ = data("rbf")
    with pytest.raises(ValueError, match=r"device = 'gpu'.*'cpu', 'cuda', 'cuda:N' or 'torch'"):
        LDSU(solver=solver, device="gpu").fit(X)
    if not torch.cuda.is_available():
        for device in ("cuda", "cuda:1"):
            with pytest.raises(ValueError, match=rf"device '{device}'.*finds no CUDA device.*device 'cpu'"):
                LDSU(solver=solver, device=device).fit(X)


def test_without_pytorch_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"device 'cuda' requires PyTorch, which is not installed.*device 'cpu'"):
        arrays_on("cuda")
    assert arrays_on("cpu") is CPU


@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_what_does_not_fit_the_device_is_refused_with_its_size(solver, monkeypatch):
    X, _, _ = data("rbf")
    monkeypatch.setattr("ldsu._utils.arrays.TorchArrays.free_memory", lambda self: 1000)
    with pytest.raises(MemoryError, match=rf"{solver} solver for 150 samples on device 'torch' needs .*device='cpu'"):
        LDSU(solver=solver, device="torch").fit(X)


def sparse_inner_products(device, dtype, **options):
    """Of the features: in single precision the directions of nearly equal weight are not distinguished."""
    X, new, _ = data("rbf", dtype)
    model = LDSU(solver="sparse", device=device, **options).fit(X, some_digits()[1])
    features = model.transform(np.vstack([X, new]))
    assert features.dtype == dtype
    return features @ features.T


def test_sparse_solver_gives_the_same_features_on_both():
    cpu, other = (sparse_inner_products(device, "float64", tol=1e-10) for device in ("cpu", "torch"))
    np.testing.assert_allclose(cpu, other, atol=1e-9 * np.abs(cpu).max())


@pytest.mark.parametrize("tol", [1e-2, 3e-3, 1e-3])
def test_in_single_precision_both_differ_by_rounding_far_less_than_the_tolerance_leaves_open(tol):
    solved = sparse_inner_products("cpu", "float64", tol=1e-10)
    cpu, other = (sparse_inner_products(device, "float32", tol=tol) for device in ("cpu", "torch"))
    assert np.abs(cpu - other).max() < 5e-5 * np.abs(solved).max()
    if tol > 1e-3:  # below, the error is near that of rounding
        assert np.abs(cpu - other).max() < 0.1 * np.abs(cpu - solved).max()


class TestOperations:
    """Each operation of the array layer against NumPy's."""

    arrays = property(lambda self: arrays_on("torch"))

    def matrix(self, n=40):
        A = np.random.default_rng(0).standard_normal((n, n))
        return A @ A.T / n + np.eye(n)

    def test_arrays_go_and_come_back_in_any_layout(self):
        A = np.arange(12.0).reshape(3, 4)
        read_only = A.copy()
        read_only.setflags(write=False)
        for layout in (A, np.asfortranarray(A), A[::-1, ::2], A.T, read_only, A[0], A.astype(np.float32)):
            back = self.arrays.get(self.arrays.put(layout))
            np.testing.assert_array_equal(back, layout)
            assert back.dtype == layout.dtype
        assert self.arrays.get(self.arrays.put(A, "float32")).dtype == np.float32

    def test_sparse_matrices_multiply_alike(self):
        A = scipy.sparse.random_array((30, 30), density=0.1, random_state=np.random.default_rng(0), format="csr")
        B = np.random.default_rng(1).standard_normal((30, 5))
        product = self.arrays.put(A) @ self.arrays.put(B)
        np.testing.assert_allclose(self.arrays.get(product), A @ B, atol=1e-14)

    def test_sparse_matrices_have_short_indices_where_these_suffice(self, monkeypatch):
        A = scipy.sparse.random_array((30, 20), density=0.1, random_state=np.random.default_rng(0), format="csr")
        assert self.arrays.put(A).col_indices().dtype == self.arrays.put(A).crow_indices().dtype == torch.int32
        monkeypatch.setattr("ldsu._utils.arrays.MAX_INT32", A.nnz - 1)
        assert self.arrays.put(A).col_indices().dtype == self.arrays.put(A).crow_indices().dtype == torch.int64

    def test_eigenpairs_are_read_from_the_lower_triangle(self):
        A = self.matrix()
        values, vectors = self.arrays.eigh(self.arrays.put(np.tril(A)))
        np.testing.assert_allclose(values, np.linalg.eigvalsh(A), rtol=1e-12)
        np.testing.assert_allclose(A @ vectors.numpy(), vectors.numpy() * values, atol=1e-12)

    def test_generalized_eigenpairs(self):
        A, B = np.diag(np.arange(40.0)), self.matrix()
        values, vectors = self.arrays.generalized_eigh(self.arrays.put(A), self.arrays.put(B))
        np.testing.assert_allclose(values, CPU.generalized_eigh(A.copy(), B.copy())[0], atol=1e-10)
        W = vectors.numpy()
        np.testing.assert_allclose(W.T @ B @ W, np.eye(40), atol=1e-10)
        with pytest.raises(ValueError, match="size 40 is singular"):
            self.arrays.generalized_eigh(self.arrays.put(A), self.arrays.put(-B))

    def test_systems(self):
        A, T = self.matrix(), np.random.default_rng(1).standard_normal((40, 3))
        put, get = self.arrays.put, self.arrays.get
        np.testing.assert_allclose(get(self.arrays.solve(put(np.tril(A)), put(T), 1.0)), np.linalg.solve(A, T))
        A[:20] += 1
        np.testing.assert_allclose(
            get(self.arrays.lu_solve(self.arrays.lu_factor(put(A)), put(T))), np.linalg.solve(A, T)
        )

    def test_a_shift_lost_in_rounding_is_put_back(self):
        u = np.random.default_rng(0).standard_normal((40, 1))
        A = 1e20 * (u @ u.T)  # plus the identity, of which nothing is left
        T = np.random.default_rng(1).standard_normal((40, 3))
        other = self.arrays.get(self.arrays.solve(self.arrays.put(A), self.arrays.put(T), 1e6))
        assert np.all(np.isfinite(other))
        assert np.abs(other).max() <= np.abs(T).sum() / 1e6

    def test_a_singular_system_gives_no_number_rather_than_an_error(self):
        A, T = self.arrays.put(np.zeros((3, 3))), self.arrays.put(np.ones((3, 1)))
        assert not np.any(np.isfinite(self.arrays.get(self.arrays.lu_solve(self.arrays.lu_factor(A), T))))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
@pytest.mark.parametrize("filter_name", FILTERS)
def test_a_gpu_gives_the_features_of_the_cpu(filter_name):
    X, new, _ = data("rbf")
    cpu, gpu = (LDSU(filter=filter_name, solver="exact", device=d).fit(X, some_digits()[1]) for d in ("cpu", "cuda"))
    assert_same_features(cpu.transform(new), gpu.transform(new), 1e-7)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(gpu)).transform(new), gpu.transform(new))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
def test_the_sparse_solver_on_a_gpu_has_the_features_of_the_cpu():
    X, new, _ = data("rbf")
    # With few anchors their columns are solved last, and converged ones before them are dropped.
    parameters = {"solver": "sparse", "tol": 1e-10, "min_anchors": 1, "n_landmarks": 60}
    cpu, gpu = (LDSU(device=device, **parameters).fit(X, some_digits()[1]) for device in ("cpu", "cuda"))
    assert_same_features(cpu.transform(new), gpu.transform(new), 1e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
def test_the_memory_planned_for_a_gpu_suffices():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20_000, 100)).astype(np.float32), np.full(20_000, -1)
    y[:200] = np.arange(200) % 10
    model = LDSU(solver="sparse", strength=100.0, device="cuda")
    planned = device_memory(X, y, model._settings(20_000), arrays_on("cuda"))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model.fit(X, y)
    assert torch.cuda.max_memory_allocated() - before < planned


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
def test_the_classifier_on_a_gpu_has_the_labels_of_the_cpu():
    X, y = load_digits(return_X_y=True)
    X += 1e-3 * np.random.default_rng(0).standard_normal(X.shape)  # no two distances are equal
    few = few_labels(y, 4)
    cpu, gpu = (LDSUClassifier(LDSU(solver="sparse", tol=1e-10, device=d)).fit(X, few) for d in ("cpu", "cuda"))
    assert np.mean(cpu.transduction_ != gpu.transduction_) < 0.001
    np.testing.assert_allclose(cpu.predict_proba(X), gpu.predict_proba(X), atol=1e-4)
