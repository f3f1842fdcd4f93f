"""The sparse solver: exact in its limit, its parts as their formulas say, the same answer on every device."""

import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeClassifier

from conftest import few_labels, peak_memory
from ldsu import LDSU, LDSUClassifier, mean_average_precision
from ldsu._utils.arrays import CPU
from ldsu.datasets import load
from ldsu.kernels import Kernel
from ldsu.methods.ldsu import SPARSE_ROWS
from ldsu.neighbors import input_neighbors, kernel_neighbors, neighbor_index
from ldsu.sample_kernels import SAMPLE_KERNELS, SampleKernel
from ldsu.solvers import Landmarks, conjugate_gradients
from ldsu.solvers._landmarks import MAX_LABELLED, choose_landmarks, landmark_transform
from ldsu.solvers._residual_factor import conditioning_sets, residual_factor

EXACT = {"solver": "exact", "gamma": 0.3}


def limit(n, **parameters):
    """The sparse solver where nothing is left out: every sample is conditioned on all that come before it."""
    return LDSU(solver="sparse", gamma=0.3, n_conditioning=n - 1, nugget=1e-12, tol=1e-12, **parameters)


def kernel_samples(kernel, kind, n=80):
    """Samples without equal distances, with many zeros, and new samples; "low rank" has fewer columns than rows."""
    rng = np.random.default_rng(3)
    X = rng.poisson(1.0, (n + 20, 6 if kind == "low rank" else 150))
    X = X * rng.random(X.shape)
    X, y = X / X.std(), rng.integers(0, 3, n)
    X = scipy.sparse.csr_array(X) if kind == "sparse" else X
    return X[:n], few_labels(y, 4), X[n:]


def samples(n=80, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 6)), rng.integers(0, 3, n), rng.standard_normal((20, 6))


def gram(model, X, Q):
    """Inner products of features: what a linear classifier sees."""
    Z = model.transform(X)
    return np.vstack([Z, model.transform(Q)]) @ Z.T


def test_more_neighbors_than_the_limit_are_left_to_the_exact_solver():
    X = np.zeros((2002, 1))
    with pytest.raises(ValueError, match=r"n_conditioning must be at most 2,000, not 2,001\. Use solver='exact'\."):
        LDSU(solver="sparse", n_conditioning=2001).fit(X)
    few = LDSU(solver="sparse", n_conditioning=2001).fit(samples(20)[0])  # no more than there are others
    assert few.feature_map_.n_conditioning == 19


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_fit_transform_gives_the_features_of_transform(solver, dtype):
    X, y, _ = samples()
    few = few_labels(y, 3)
    model = LDSU(solver=solver)
    Z = model.fit_transform(X.astype(dtype), few)
    assert Z.dtype == dtype
    np.testing.assert_allclose(Z, model.transform(X.astype(dtype)), rtol=1e-5, atol=1e-6 * np.abs(Z).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tol", [1e-2, 1e-7])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_features_of_training_rows_stay_on_the_device_and_are_those_of_transform(dtype, tol, kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    X, y, _ = kernel_samples("rbf", kind)
    X = X.astype(dtype)
    model = LDSU(solver="sparse", tol=tol, device="torch")
    on_device, Z = model.fit_transform_on_device(X, y), model.fit_transform(X, y)
    assert isinstance(on_device, torch.Tensor)
    assert isinstance(Z, np.ndarray)
    assert Z.dtype == dtype
    np.testing.assert_array_equal(on_device.numpy(), Z)
    np.testing.assert_allclose(Z, model.transform(X), rtol=1e-5, atol=1e-5 * np.abs(Z).max())


@pytest.mark.parametrize("n_landmarks", [0, 1, 10, 60, 80])
@pytest.mark.parametrize("per_class", [0, 1, 4])
def test_conditioned_on_everything_it_is_the_exact_solver_whatever_the_landmarks(n_landmarks, per_class):
    X, y, Q = samples()
    few = few_labels(y, per_class) if per_class else None
    anchors = {"min_anchors": 3 * per_class} if per_class else {"min_anchors": 80}
    sparse = limit(80, n_landmarks=n_landmarks if per_class else 80, landmark_noise=0.1, **anchors).fit(X, few)
    exact = LDSU(**EXACT, **anchors).fit(X, few)
    np.testing.assert_allclose(gram(sparse, X, Q), gram(exact, X, Q), atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("scaling", ["relative", "absolute"])
@pytest.mark.parametrize("kernel", SAMPLE_KERNELS)
def test_every_kernel_conditioned_on_everything_is_the_exact_solver(kernel, scaling, kind):
    X, few, Q = kernel_samples(kernel, kind)
    common = {"kernel": kernel, "scaling": scaling, "min_anchors": 12, "strength": 10.0}
    sparse = LDSU(solver="sparse", n_conditioning=79, nugget=1e-12, tol=1e-12, landmark_noise=0.1, **common)
    sparse.fit(X, few)
    exact = LDSU(solver="exact", **common).fit(X, few)
    scale = np.abs(gram(exact, X, X)).max()
    np.testing.assert_allclose(gram(sparse, X, Q), gram(exact, X, Q), atol=1e-8 * scale)
    np.testing.assert_allclose(sparse.eigenvalues_, exact.eigenvalues_, atol=1e-8 * exact.eigenvalues_[0])
    assert sparse.theta_ == pytest.approx(exact.theta_)
    np.testing.assert_allclose(sparse.fit_transform(X, few), sparse.transform(X), atol=1e-6 * scale)


@pytest.mark.parametrize("kernel", ["linear", "cosine", "poly"])
def test_a_kernel_of_low_rank_is_that_of_the_exact_solver_up_to_the_nugget(kernel):
    X, few, Q = kernel_samples(kernel, "low rank")
    common = {"kernel": kernel, "min_anchors": 12, "degree": 2, "strength": 10.0}
    exact = LDSU(solver="exact", **common).fit(X, few)
    scale, errors = np.abs(gram(exact, X, X)).max(), []
    for nugget in (1e-4, 1e-6, 1e-8):
        sparse = LDSU(solver="sparse", n_conditioning=79, nugget=nugget, tol=1e-9, max_iter=3000, **common).fit(X, few)
        errors.append(np.abs(gram(sparse, X, Q) - gram(exact, X, Q)).max() / scale)
    assert errors[2] < errors[1] < errors[0] < 0.1
    assert errors[2] < 1e-4
    X[5] = 0  # k(x, x) = 0 with linear and cosine
    assert np.isfinite(LDSU(solver="sparse", **common).fit(X, few).transform(Q)).all()


@pytest.mark.parametrize("kernel", SAMPLE_KERNELS)
def test_truncated_features_of_every_kernel_filter_with_its_eigenvalues(kernel):
    """``M v = mu K^-1 v`` with ``v^T K^-1 v = 1``: ``v^T M v = mu``, in the units of the kernel itself."""
    X, few, _ = kernel_samples(kernel, "dense")
    common = {"kernel": kernel, "filter": "truncate", "n_components": 10, "store_graphs": True}
    model = LDSU(solver="sparse", n_conditioning=79, nugget=1e-12, tol=1e-8, **common).fit(X, few)
    exact = LDSU(solver="exact", **common).fit(X, few)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=1e-4, atol=1e-9)
    V = model.transform(X)
    M = (model.class_laplacian_ + model.clique_laplacian_).toarray()
    np.testing.assert_allclose(np.diag(V.T @ M @ V), model.eigenvalues_, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kernel", SAMPLE_KERNELS)
def test_sparse_and_dense_samples_give_the_same_features(kernel):
    X, few, Q = kernel_samples(kernel, "dense", 200)
    dense, sparse = (
        LDSU(solver="sparse", kernel=kernel, strength=10.0, nugget=1e-3, tol=1e-7).fit(form(X), few)
        for form in (np.asarray, scipy.sparse.csr_matrix)
    )
    assert sparse.gamma_ == pytest.approx(dense.gamma_)
    scale = np.abs(gram(dense, X, X)).max()
    np.testing.assert_allclose(gram(sparse, X, Q), gram(dense, X, Q), atol=1e-5 * scale)  # dense rows, too
    together = sparse.transform(scipy.sparse.csr_matrix(Q))
    alone = np.vstack([sparse.transform(scipy.sparse.csr_array(q[None])) for q in Q[:3]])
    np.testing.assert_allclose(alone, together[:3], atol=1e-6 * np.abs(together).max())


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["laplacian", "chi2", "cosine", "poly"])
def test_neighbors_are_those_in_the_kernels_own_distance(kernel, kind, monkeypatch):
    X, few, _ = kernel_samples(kernel, kind, 300)
    model = LDSU(solver="sparse", kernel=kernel, strength=10.0, tol=1e-6, store_graphs=True).fit(X, few)
    K = Kernel(kernel, model.gamma_)(X)
    nearest = kernel_neighbors(K, 5)[1]
    np.testing.assert_array_equal(model.neighbors_[:, :5], nearest)
    monkeypatch.setattr("ldsu.neighbors._index.EXACT_ROWS", 100)  # from cells, all of which are searched
    from_cells = model.fit(X, few).neighbors_[:, :5]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(nearest, from_cells, strict=True)]) > 0.95


def test_wide_sparse_samples_are_never_dense():
    """Of a million columns: their dense form would take 24 GiB."""
    rng = np.random.default_rng(0)
    n, d = SPARSE_ROWS + 200, 10**6
    y = rng.integers(0, 4, n)
    words = rng.choice(d, (4, 200), replace=False)[y[:, None], rng.integers(0, 200, (n, 20))]
    X = scipy.sparse.csr_array((np.ones(words.size), words.ravel(), np.arange(0, words.size + 1, 20)), shape=(n, d))
    few = few_labels(y, 3)
    with peak_memory() as peak:
        model = LDSU(kernel="cosine", strength=100.0, min_anchors=12, n_landmarks=20, n_conditioning=5).fit(X, few)
        assert model.solver_ == "sparse"
        new = model.transform(X[:200])
    assert peak() < 2**29
    decision = RidgeClassifier(alpha=1e-6).fit(model.transform(X[few >= 0]), few[few >= 0])
    assert decision.score(new, y[:200]) > 0.9


@pytest.mark.parametrize("parameter", [{"lam": 30.0}, {"strength": 0.0}, {"strength": 1e4}, {"scaling": "absolute"}])
def test_the_limit_holds_for_other_settings(parameter):
    X, y, Q = samples()
    few = few_labels(y, 3)
    common = {"min_anchors": 9, "clique_size": 4, **parameter}
    sparse, exact = limit(80, **common).fit(X, few), LDSU(**EXACT, **common).fit(X, few)
    np.testing.assert_allclose(gram(sparse, X, Q), gram(exact, X, Q), atol=1e-8)


def test_more_labels_than_landmarks_still_give_the_exact_inner_products_at_the_anchors(monkeypatch):
    monkeypatch.setattr("ldsu.solvers._landmarks.MAX_LABELLED", 9)
    X, y, _ = samples()
    few = few_labels(y, 8)
    sparse = limit(80, n_landmarks=5, min_anchors=1).fit(X, few)
    assert sparse.anchors_.size == 9
    assert np.bincount(few[sparse.anchors_]).tolist() == [3, 3, 3]
    exact = LDSU(**EXACT, min_anchors=1).fit(X, few)
    A = sparse.anchors_
    of = [model.transform(X[A]) @ model.transform(X[A]).T for model in (sparse, exact)]
    np.testing.assert_allclose(*of, atol=1e-9)


def test_the_factor_is_the_conditional_of_each_sample_given_its_set():
    X, _, _ = samples(30)
    gamma, nugget, s = 0.3, 0.01, 5
    rank = np.random.default_rng(1).permutation(30)
    neighbors = input_neighbors(X, 10)[1]
    sets = conditioning_sets(neighbors, rank, s, CPU)
    kernel = SampleKernel("rbf", gamma)
    P = Landmarks(X[:4], landmark_transform(X[:4], kernel, 0.1, CPU), kernel).features(X, CPU)[0]
    R = np.exp(-gamma * ((X[:, None] - X) ** 2).sum(axis=2)) - P @ P.T
    rows, columns, values = residual_factor(X, P, sets, kernel, nugget, CPU)
    G = np.zeros((30, 30))
    G[rows, columns] = values
    for i in range(30):
        N = [j for j in neighbors[i] if rank[j] < rank[i]][:s]
        assert sorted(set(sets[i]) - {i}) == sorted(N)
        w = np.linalg.solve(R[np.ix_(N, N)] + nugget * np.eye(len(N)), R[N, i])
        v = max(R[i, i] - w @ R[N, i], nugget)
        row = np.zeros(30)
        row[N], row[i] = -w, 1
        np.testing.assert_allclose(G[i], row / np.sqrt(v), atol=1e-10)


def test_landmark_features_leave_a_positive_semi_definite_residual():
    X, _, _ = samples()
    K, kernel = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2)), SampleKernel("rbf", 0.3)
    for noise in (1e-8, 0.1, 10.0):
        P, nearest = Landmarks(X[:15], landmark_transform(X[:15], kernel, noise, CPU), kernel).features(X, CPU)
        Nystroem = K[:, :15] @ np.linalg.inv(K[:15, :15] + noise * np.eye(15)) @ K[:15]
        np.testing.assert_allclose(P @ P.T, Nystroem, atol=1e-6)
        assert np.linalg.eigvalsh(K - P @ P.T).min() > -1e-8
        np.testing.assert_array_equal(nearest, K[:, :15].argmax(axis=1))


def test_landmarks_are_the_labelled_samples_and_others():
    codes = np.full(500, -1)
    codes[[3, 100, 400]] = [0, 1, 0]
    landmarks, m, drawn = choose_landmarks(codes, 20, np.random.default_rng(0))
    assert m == 3
    assert landmarks[:3].tolist() == [3, 100, 400]
    assert drawn.size == 20
    assert np.unique(landmarks).size == landmarks.size == np.union1d([3, 100, 400], landmarks[drawn]).size
    other = np.full(500, -1)
    other[landmarks[drawn[0]]] = 0
    relabelled, _, redrawn = choose_landmarks(other, 20, np.random.default_rng(0))
    np.testing.assert_array_equal(relabelled[redrawn], landmarks[drawn])  # whatever the labels


def test_many_labelled_samples_give_landmarks_class_by_class():
    codes = np.repeat([0, 1], [5000, 200])
    landmarks, m, _ = choose_landmarks(codes, 0, np.random.default_rng(0))
    assert m == MAX_LABELLED
    assert np.bincount(codes[landmarks[:m]]).tolist() == [800, 200]


@pytest.mark.parametrize("made", [False, True])
def test_conjugate_gradients_solve_every_column_and_leave_zero_columns_alone(made):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 40))
    A = A @ A.T + np.eye(40)
    B = rng.standard_normal((40, 5))
    B[:, 2] = 0
    given = B.copy()
    X, iterations, residual = conjugate_gradients(lambda V: A @ V, np.copy, B.copy if made else given, 1e-10, 200, np)
    np.testing.assert_allclose(A @ X, B, atol=1e-8)
    np.testing.assert_array_equal(X[:, 2], 0)
    np.testing.assert_array_equal(given, B)
    assert 1 < iterations <= 200
    assert residual <= 1e-10


def test_columns_that_converge_early_are_dropped():
    rng = np.random.default_rng(0)
    A = np.diag(np.linspace(1, 100, 60))
    B = rng.standard_normal((60, 8))
    B[:, ::2] = 0
    B[:4, ::2] = 1.0  # four eigenvectors: four iterations
    widths = []

    def apply(V):
        assert V.flags.c_contiguous
        widths.append(V.shape[1])
        return A @ V

    X, iterations, residual = conjugate_gradients(apply, np.copy, B, 1e-10, 200, np)
    assert widths == [8] * 4 + [4] * (iterations - 4) + [8]
    assert residual <= 1e-10
    np.testing.assert_allclose(A @ X, B, atol=1e-8)


def test_rows_in_several_places_are_solved_as_those_in_one():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 40))
    A = A @ A.T + np.eye(40)
    B = rng.standard_normal((40, 5))
    both, given = threading.Barrier(2), [None, None]

    def exchange(number, values):
        given[number] = values
        both.wait()
        exchanged = list(given)
        both.wait()
        return exchanged

    def solve(number):
        own = slice(15 * number, 15 + 25 * number)
        return conjugate_gradients(
            lambda V: A[own] @ np.concatenate(exchange(number, V)),
            np.copy,
            B[own],
            1e-10,
            200,
            np,
            lambda V, W: sum(exchange(number, (V * W).sum(axis=0))),
        )

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(solve, range(2))
    X, iterations, residual = conjugate_gradients(lambda V: A @ V, np.copy, B, 1e-10, 200, np)
    np.testing.assert_allclose(np.concatenate([first[0], second[0]]), X, atol=1e-9)
    assert first[1] == second[1] == pytest.approx(iterations, abs=1)
    assert first[2] == second[2] <= 1e-10
    assert residual <= 1e-10


def test_a_solve_that_is_cut_short_says_so_and_names_what_to_change(digits):
    X, y = digits
    with pytest.warns(ConvergenceWarning, match="max_iter=2 .* above tol=1e-06. Increase max_iter, tol or nugget"):
        model = LDSU(solver="sparse", max_iter=2, tol=1e-6).fit(X, y)
    assert model.residual_ > 1e-6
    assert model.n_iter_ == 2


def test_convergence_is_reported(digits):
    model = LDSU(solver="sparse").fit(*digits)
    assert model.n_iter_ > 1
    assert 0 < model.residual_ <= 1e-2


def test_single_precision_agrees_with_double(digits):
    X, y = digits
    single, double = (LDSU(solver="sparse", tol=tol).fit(X, y) for tol in (1e-4, 1e-9))
    G, G_double = gram(single, X, X), gram(double, X, X)
    np.testing.assert_allclose(G, G_double, atol=1e-3 * np.abs(G_double).max())


@pytest.mark.parametrize("unit", [1e30, 1e-30, 1e60, 1e-60])
def test_samples_beyond_the_range_of_single_precision_mean_the_same(unit):
    X, y, _ = samples(200)
    few = few_labels(y, 3)
    near, far = (LDSU(solver="sparse").fit(X * u, few) for u in (1.0, unit))
    np.testing.assert_allclose(gram(far, X * unit, X * unit), gram(near, X, X), atol=1e-6)
    np.testing.assert_array_equal(near.transform(X[:2] * 1e45), 0)  # far from everything


@pytest.mark.parametrize("strength", [1e3, 1e5])
def test_a_strong_filter_is_solved_as_well_as_a_weak_one(strength):
    X, y = load_digits(return_X_y=True)
    few = np.where(np.arange(len(y)) < 100, y, -1)
    ridge = RidgeClassifier(alpha=0.1)
    scores = [
        LDSUClassifier(LDSU(solver=solver, strength=strength, min_anchors=50), ridge, standardize_scores=False)
        .fit(X, few)
        .score(X[100:], y[100:])
        for solver in ("exact", "sparse")
    ]
    assert abs(scores[0] - scores[1]) < 0.005


def test_concurrent_transforms_leave_blas_as_it_was(digits):
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info, threadpool_limits

    X, y = digits
    model = LDSU(solver="sparse").fit(X, y)
    with threadpool_limits(2, "blas"):
        before = [library["num_threads"] for library in threadpool_info()]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: model.transform(X), range(12)))
        assert [library["num_threads"] for library in threadpool_info()] == before
    for result in results:
        np.testing.assert_allclose(result, results[0], atol=1e-12)


def test_copies_constant_rows_and_isolated_points_do_no_harm():
    rng = np.random.default_rng(0)
    X = np.vstack([np.zeros((40, 3)), rng.standard_normal((40, 3)), [[1e3, 0, 0]]])
    y = np.full(81, -1)
    y[[0, 45, 50]] = [0, 1, 2]
    model = LDSU(solver="sparse").fit(X, y)
    Z = model.transform(np.vstack([X, [[0, 1e6, 0]]]))
    assert np.isfinite(Z).all()
    np.testing.assert_allclose(Z[0], Z[20], atol=1e-4)
    assert np.abs(Z[-1]).max() < 1e-6  # far from everything: no feature
    same = LDSU(solver="sparse").fit(np.ones((30, 2)), np.r_[0, 1, np.full(28, -1)])
    assert np.isfinite(same.transform(np.ones((3, 2)))).all()


def test_it_is_deterministic_and_survives_pickling(digits):
    X, y = digits
    first, second = (LDSU(solver="sparse").fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).transform(X), first.transform(X))
    assert not np.array_equal(LDSU(solver="sparse", random_state=1).fit(X, y).transform(X), first.transform(X))


def test_rows_transform_one_by_one_as_together(digits):
    X, y = digits
    model = LDSU(solver="sparse").fit(X, y)
    together = model.transform(X[:7])
    np.testing.assert_allclose(np.vstack([model.transform(x[None]) for x in X[:7]]), together, atol=1e-5)


def test_a_large_common_offset_changes_nothing(digits):
    X, y = digits
    near, far = LDSU(solver="sparse").fit(X, y), LDSU(solver="sparse").fit(X + 1e5, y)
    np.testing.assert_allclose(np.abs(far.transform(X + 1e5)), np.abs(near.transform(X)), atol=1e-4)


def test_training_rows_get_their_training_features(digits):
    """The nearest training point of a training row is itself: what it was given is what it gets, but for the nugget."""
    X, y = digits
    model = LDSU(solver="sparse", nugget=1e-8, tol=1e-8).fit(X, y)
    of = model.feature_map_
    n_labelled = of.transform.shape[1] - of.P.shape[1]
    landmarks = Landmarks(of.landmarks, of.transform, of.sample_kernel, n_labelled)
    training = landmarks.features(of.points, CPU)[0] @ of.global_coefficients + of.local
    np.testing.assert_allclose(model.transform(X), training, atol=1e-5 * np.abs(training).max())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": np.dot}, "supports the kernels rbf, .*, not a function"),
        ({"kernel": "precomputed"}, "not 'precomputed'"),
        ({"filter": "heat"}, "not 'heat'"),
        ({"kernel": "chi2", "cliques": "input"}, "with kernel='chi2' it only supports cliques='kernel'"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(parameters, message, digits):
    X, y = digits
    with pytest.raises(ValueError, match=message):
        LDSU(solver="sparse", **parameters).fit(X @ X.T if parameters.get("kernel") == "precomputed" else np.abs(X), y)


def test_auto_takes_the_sparse_solver_only_where_it_serves_and_is_faster():
    rng = np.random.default_rng(0)
    many, few = rng.standard_normal((SPARSE_ROWS + 1, 3)), rng.standard_normal((100, 3))
    assert LDSU().fit(many).solver_ == "sparse"
    assert LDSU().fit(few).solver_ == "exact"
    assert LDSU(kernel="cosine").fit(scipy.sparse.csr_array(many)).solver_ == "sparse"
    model = LDSU(kernel=np.dot)
    assert model._choose_solver(many, model._settings(len(many))) == "exact"
    model = LDSU(50, filter="truncate")
    assert model._choose_solver(many, model._settings(len(many))) == "exact"


def test_the_user_gets_neighbors_and_graphs(digits):
    X, y = digits
    sparse = LDSU(solver="sparse", store_graphs=True).fit(X, y)
    exact = LDSU(solver="exact", store_graphs=True).fit(X, y)
    assert sparse.neighbors_.shape == (120, 30)
    np.testing.assert_array_equal(sparse.neighbors_[:, :5], input_neighbors(X, 5)[1])
    difference = abs(sparse.clique_laplacian_ - exact.clique_laplacian_)
    assert difference.max() < 1e-4


def test_memory_is_asked_for_before_it_is_taken(monkeypatch):
    X = np.zeros((SPARSE_ROWS + 1, 2))
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**20)
    with pytest.raises(MemoryError, match="LDSU for 3001 samples needs about"):
        LDSU().fit(X)


def test_the_approximate_search_serves_the_solver(monkeypatch):
    """Above the exact rows neighbors come from cells, and the features are as good."""
    monkeypatch.setattr("ldsu.neighbors._index.EXACT_ROWS", 500)
    X, y = load_digits(return_X_y=True)
    few = few_labels(y[:1200], 3)
    model = LDSUClassifier(LDSU(solver="sparse")).fit(X[:1200], few)
    assert neighbor_index(X[:1200])[0].cells is not None
    assert model.score(X[1200:], y[1200:]) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", ["usps", "umist", "coil20", "yaleb"])
def test_on_real_images_it_is_as_good_as_the_exact_solver(name, real_data):
    """At most 0.005 of mean average precision below it, mean of five splits, at 1, 3, 5 and 10 labels per class."""
    real_data(f"{name}.npz")  # skips where there is none
    data = load(name, preprocessing="log") if name == "yaleb" else load(name)
    X, y = np.asarray(data.X, dtype=np.float32), data.y
    for per_class in (1, 3, 5, 10):
        scores = {"exact": [], "sparse": []}
        for split in range(5):
            order = np.random.default_rng(split).permutation(len(y))
            train, test = order[: len(y) // 2], order[len(y) // 2 :]
            rng = np.random.default_rng(split)
            few = np.full(train.size, -1)
            for label in np.unique(y):
                few[rng.permutation(np.flatnonzero(y[train] == label))[:per_class]] = label
            for solver, values in scores.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("error", ConvergenceWarning)
                    ldsu = LDSU(solver=solver, strength=100.0)
                    model = LDSUClassifier(ldsu, RidgeClassifier(alpha=0.1), standardize_scores=False).fit(
                        X[train], few
                    )
                values.append(mean_average_precision(y[test], model.decision_function(X[test]), classes=model.classes_))
        assert np.mean(scores["sparse"]) > np.mean(scores["exact"]) - 0.005, (per_class, scores)
