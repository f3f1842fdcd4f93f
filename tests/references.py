"""Slow, obvious reference implementations for the tests.

Each function is written straight from its formula, with plain loops and dense float64 matrices, and shares
no code with the library: a test compares the fast implementation with the one here on a small problem
(n <= 200). Clarity comes before speed throughout.

Conventions: rows are samples; ``codes`` is an integer array with -1 for unlabelled and 0..c-1 for the
classes; H = I - 1 1^T / k is the centering matrix. Eigenvectors are defined up to sign, and up to a rotation
where eigenvalues are equal: compare projectors, Gram matrices or absolute values.
"""

import numpy as np
import scipy.linalg

# ---------------------------------------------------------------------------------------------------------
# helpers


def _symmetric(A):
    """(A + A^T) / 2: removes the rounding noise of a matrix that is symmetric by construction."""
    return 0.5 * (A + A.T)


def _centering(k):
    """H = I - 1 1^T / k."""
    return np.eye(k) - np.ones((k, k)) / k


def _classes(codes):
    """Sorted class codes present among the labelled samples (codes >= 0)."""
    return sorted({int(t) for t in codes if t >= 0})


def _kept_eigenpairs(K, rtol=None):
    """K = V Lambda V^T, keeping eigenvalues > rtol * max (rtol = n * eps by default); ascending."""
    K = np.asarray(K, dtype=np.float64)
    n = K.shape[0]
    if rtol is None:
        rtol = n * np.finfo(np.float64).eps
    lam, V = scipy.linalg.eigh(_symmetric(K))
    keep = lam > rtol * lam.max()
    return lam[keep], V[:, keep]


def _nearest_others(D2, i, k):
    """The k indices j != i with the smallest D2[i, j], ties by lower index."""
    others = [j for j in range(D2.shape[0]) if j != i]
    if k > len(others):
        raise ValueError(f"{k} neighbors asked for, only {len(others)} other points")
    return sorted(others, key=lambda j: (D2[i, j], j))[:k]


# ---------------------------------------------------------------------------------------------------------
# kernels and distances


def chi2_distance(x, y):
    """sum_j (x_j - y_j)^2 / (x_j + y_j), terms with x_j + y_j = 0 counting 0 (x, y >= 0)."""
    total = 0.0
    for xj, yj in zip(x, y, strict=True):
        if xj + yj != 0.0:
            total += (xj - yj) ** 2 / (xj + yj)
    return total


def kernel_matrix(name, X, Y, gamma=None, degree=3, coef0=1.0):
    """K_ij = k(x_i, y_j), one entry at a time.

    rbf: exp(-gamma |x - y|^2); laplacian: exp(-gamma sum_j |x_j - y_j|); linear: x.y;
    chi2: exp(-gamma sum_j (x_j - y_j)^2 / (x_j + y_j));
    poly: (gamma x.y + coef0)^degree; cosine: x.y / (|x| |y|), 0 where either vector is zero.
    ``gamma`` is required by rbf, laplacian, chi2 and poly (see `median_gamma`), ignored by the others.
    """
    X = np.asarray(X, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.float64)
    if name in ("rbf", "laplacian", "chi2", "poly") and gamma is None:
        raise ValueError(f"the {name} kernel needs gamma")
    K = np.zeros((X.shape[0], Y.shape[0]))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            if name == "rbf":
                K[i, j] = np.exp(-gamma * np.sum((x - y) ** 2))
            elif name == "laplacian":
                K[i, j] = np.exp(-gamma * np.sum(np.abs(x - y)))
            elif name == "chi2":
                K[i, j] = np.exp(-gamma * chi2_distance(x, y))
            elif name == "linear":
                K[i, j] = np.dot(x, y)
            elif name == "poly":
                K[i, j] = (gamma * np.dot(x, y) + coef0) ** degree
            elif name == "cosine":
                norms = np.sqrt(np.dot(x, x)) * np.sqrt(np.dot(y, y))
                K[i, j] = np.dot(x, y) / norms if norms > 0.0 else 0.0
            else:
                raise ValueError(f"unknown kernel {name!r}")
    return K


def median_gamma(name, X, scale=1.0):
    """gamma = scale / (2 median_{i<j} d(x_i, x_j)).

    d is the squared Euclidean distance for rbf and poly, sum_j |x_j - y_j| for laplacian,
    sum_j (x_j - y_j)^2 / (x_j + y_j) for chi2.
    Pairs at distance zero (duplicates) count like any other pair.
    """
    X = np.asarray(X, dtype=np.float64)
    distances = []
    for i in range(X.shape[0]):
        for j in range(i + 1, X.shape[0]):
            if name in ("rbf", "poly"):
                distances.append(np.sum((X[i] - X[j]) ** 2))
            elif name == "laplacian":
                distances.append(np.sum(np.abs(X[i] - X[j])))
            elif name == "chi2":
                distances.append(chi2_distance(X[i], X[j]))
            else:
                raise ValueError(f"no gamma for kernel {name!r}")
    return scale / (2.0 * np.median(distances))


def squared_distances(X):
    """D2_ij = sum_l (x_il - x_jl)^2."""
    X = np.asarray(X, dtype=np.float64)
    n = X.shape[0]
    D2 = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            D2[i, j] = np.sum((X[i] - X[j]) ** 2)
    return D2


def kernel_squared_distances(K):
    """D2_ij = K_ii + K_jj - 2 K_ij, negative rounding noise set to 0."""
    K = np.asarray(K, dtype=np.float64)
    n = K.shape[0]
    D2 = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            D2[i, j] = max(K[i, i] + K[j, j] - 2.0 * K[i, j], 0.0)
    return D2


# ---------------------------------------------------------------------------------------------------------
# Laplacians of the method


def cliques(D2, k):
    """N_k(x_i) = [i, its k - 1 nearest others by D2[i], nearest first, ties by lower index], for every i."""
    return [np.array([i, *_nearest_others(D2, i, k - 1)]) for i in range(D2.shape[0])]


def class_laplacian(codes):
    """L_w = D - W, W_ij = 1 where i and j are labelled and of the same class (i = j included).

    D_ii = sum_j W_ij. Rows and columns of unlabelled samples are zero.
    """
    n = len(codes)
    W = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if codes[i] >= 0 and codes[i] == codes[j]:
                W[i, j] = 1.0
    return laplacian(W)


def clique_gram(X, idx):
    """G = H X_c X_c^T H (k x k), X_c = X[idx] with samples in rows: the centered Gram matrix of a clique."""
    Xc = np.asarray(X, dtype=np.float64)[idx]
    H = _centering(len(idx))
    return (H @ Xc) @ (H @ Xc).T


def clique_gram_kernel(K, idx):
    """G = H K[idx, idx] H (k x k): the centered Gram matrix of a clique in kernel space."""
    Kc = np.asarray(K, dtype=np.float64)[np.ix_(idx, idx)]
    H = _centering(len(idx))
    return H @ Kc @ H


def clique_laplacian(grams, cliques, theta, n):
    """L = sum_i S_i H (G_i + theta I)^-1 H S_i^T, S_i (n x k) the selection matrix of clique i."""
    L = np.zeros((n, n))
    for G, idx in zip(grams, cliques, strict=True):
        k = len(idx)
        H = _centering(k)
        S = np.zeros((n, k))
        for q, p in enumerate(idx):
            S[p, q] = 1.0
        L += S @ H @ scipy.linalg.inv(G + theta * np.eye(k)) @ H @ S.T
    return L


def mean_clique_scatter(grams):
    """(1 / n) sum_i trace(G_i) / k: the scale that a relative theta is measured in."""
    total = 0.0
    for G in grams:
        total += np.trace(G) / G.shape[0]
    return total / len(grams)


def relative_units(L):
    """L / mean(diag(L))."""
    return L / np.mean(np.diag(L))


# ---------------------------------------------------------------------------------------------------------
# LDSU and its spectral filters


def ldsu_truncate(K, M, r, rtol=None):
    """a = V Lambda^-1/2 omega[:, :r], (Lambda^1/2 V^T M V Lambda^1/2) omega = mu omega, K = V Lambda V^T.

    Algorithm 1. Eigenvalues of K up to rtol * max (rtol = n * eps by default) are dropped first.

    Returns
    -------
    mu : all eigenvalues, ascending, one per kept eigenvalue of K
    a : (n, r) coefficients of the r smallest mu, a^T K a = I
    F : (n, r) training features V Lambda^1/2 omega[:, :r], equal to K a
    """
    lam, V = _kept_eigenpairs(K, rtol)
    root = np.diag(np.sqrt(lam))
    inverse_root = np.diag(1.0 / np.sqrt(lam))
    mu, omega = scipy.linalg.eigh(_symmetric(root @ V.T @ M @ V @ root))
    return mu, V @ inverse_root @ omega[:, :r], V @ root @ omega[:, :r]


def filtered_kernel(K, M, f):
    """Kt = V Lambda^1/2 omega f(mu) omega^T Lambda^1/2 V^T, mu and omega as in `ldsu_truncate`.

    ``f`` maps the ascending array mu to an array of the same length: [1] * r + [0] * (rank - r) truncates,
    1 / (1 + eta mu) is Tikhonov's filter, exp(-t mu) the heat filter. Equal to K f(M K).
    """
    lam, V = _kept_eigenpairs(K)
    root = np.diag(np.sqrt(lam))
    mu, omega = scipy.linalg.eigh(_symmetric(root @ V.T @ M @ V @ root))
    F = V @ root @ omega
    return F @ np.diag(f(mu)) @ F.T


def tikhonov_kernel(K, M, eta):
    """Kt = (K^-1 + eta M)^-1, by explicit inverses: K must be well conditioned."""
    return _symmetric(scipy.linalg.inv(scipy.linalg.inv(K) + eta * M))


def anchored_inner_products(Kt, A):
    """Kt[:, A] pinv(Kt[A, A]) Kt[A, :] (n x n): inner products of the short features of the anchors A."""
    A = np.asarray(A)
    return Kt[:, A] @ np.linalg.pinv(_symmetric(Kt[np.ix_(A, A)]), hermitian=True) @ Kt[A, :]


# ---------------------------------------------------------------------------------------------------------
# graphs


def knn_graph(D2, k):
    """W_ij = 1 if j is among the k nearest others of i or i among those of j, else 0; ties by lower index."""
    n = D2.shape[0]
    W = np.zeros((n, n))
    for i in range(n):
        for j in _nearest_others(D2, i, k):
            W[i, j] = 1.0
            W[j, i] = 1.0
    return W


def heat_graph(D2, k, t):
    """W_ij = exp(-D2_ij / t) where `knn_graph` has an edge, else 0."""
    n = D2.shape[0]
    edges = knn_graph(D2, k)
    W = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if edges[i, j] == 1.0:
                W[i, j] = np.exp(-D2[i, j] / t)
    return W


def laplacian(W):
    """L = D - W, D_ii = sum_j W_ij."""
    return np.diag(W.sum(axis=1)) - W


# ---------------------------------------------------------------------------------------------------------
# baselines


def kda_responses(codes_l):
    """Gram-Schmidt of [1, e_0, .., e_(c-1)] (e_t the indicator of class t), the first and last left out.

    Each response has unit norm and zero mean; the last indicator lies in the span of the others and vanishes.
    """
    codes_l = np.asarray(codes_l)
    m = len(codes_l)
    basis = [np.ones(m) / np.sqrt(m)]
    for t in _classes(codes_l)[:-1]:
        v = (codes_l == t).astype(np.float64)
        for u in basis:
            v = v - np.dot(u, v) * u
        basis.append(v / np.sqrt(np.dot(v, v)))
    return np.array(basis[1:]).reshape(-1, m).T


def kda(K_l, codes_l, delta):
    """alpha = (K_l + delta I)^-1 response: kernel discriminant analysis by spectral regression.

    ``K_l`` (m x m) and ``codes_l`` hold labelled samples only; the responses are those of `kda_responses`.
    Returns alpha (m x (c - 1)).
    """
    if np.min(codes_l) < 0:
        raise ValueError("kda takes labelled samples only")
    m = len(codes_l)
    return scipy.linalg.inv(K_l + delta * np.eye(m)) @ kda_responses(codes_l)


def ksda(K, codes, L_knn, alpha, beta):
    """K W K a = mu (K (I_lab + alpha L_knn) K + beta K) a, largest mu first.

    W_ij = 1 / m_t where i and j are labelled and of the same class t (m_t members), else 0; I_lab is the
    identity on labelled rows, 0 elsewhere. K must be well conditioned.

    Returns
    -------
    mu : the c largest eigenvalues, descending
    a : (n, c) eigenvectors with a^T B a = I, B the matrix on the right
    """
    codes = np.asarray(codes)
    n = len(codes)
    c = len(_classes(codes))
    W = np.zeros((n, n))
    I_lab = np.zeros((n, n))
    for i in range(n):
        if codes[i] >= 0:
            I_lab[i, i] = 1.0
            for j in range(n):
                if codes[i] == codes[j]:
                    W[i, j] = 1.0 / np.sum(codes == codes[i])
    left = _symmetric(K @ W @ K)
    right = _symmetric(K @ (I_lab + alpha * L_knn) @ K + beta * K)
    mu, a = scipy.linalg.eigh(left, right)
    return mu[::-1][:c], a[:, ::-1][:, :c]


def _pairwise_scatter(B, W):
    """S = 1/2 sum_ij W_ij (b_i - b_j)(b_i - b_j)^T."""
    S = np.zeros((B.shape[1], B.shape[1]))
    for i in range(B.shape[0]):
        for j in range(B.shape[0]):
            if W[i, j] != 0.0:
                S += 0.5 * W[i, j] * np.outer(B[i] - B[j], B[i] - B[j])
    return S


def kself_weights(K, codes, local_neighbor=7):
    """W_lw_ij = A_ij / m_t, W_lb_ij = A_ij (1/m - 1/m_t) in class t; 0 and 1/m between classes (both n x n).

    A_ij = exp(-d_ij^2 / (sigma_i sigma_j)) with d the kernel distance and sigma_i the distance from i to the
    min(local_neighbor, m_t - 1)-th nearest other member of its class; 0 where sigma_i sigma_j = 0, except
    A_ii = 1 always. m labelled samples, m_t of them in class t; zero wherever a sample is unlabelled.
    """
    codes = np.asarray(codes)
    n = len(codes)
    m = np.sum(codes >= 0)
    D2 = kernel_squared_distances(K)
    sigma = np.zeros(n)
    for i in range(n):
        if codes[i] >= 0:
            others = sorted(np.sqrt(D2[i, j]) for j in range(n) if j != i and codes[j] == codes[i])
            q = min(local_neighbor, len(others))
            sigma[i] = others[q - 1] if q > 0 else 0.0
    W_lw = np.zeros((n, n))
    W_lb = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if codes[i] < 0 or codes[j] < 0:
                continue
            if codes[i] != codes[j]:
                W_lb[i, j] = 1.0 / m
                continue
            m_t = np.sum(codes == codes[i])
            if i == j:
                affinity = 1.0
            elif sigma[i] * sigma[j] == 0.0:
                affinity = 0.0
            else:
                affinity = np.exp(-D2[i, j] / (sigma[i] * sigma[j]))
            W_lw[i, j] = affinity / m_t
            W_lb[i, j] = affinity * (1.0 / m - 1.0 / m_t)
    return W_lw, W_lb


def kself(K, codes, beta, ridge, r, local_neighbor=7):
    """((1-beta) S_lb + beta S_t) T = mu ((1-beta) S_lw + (beta + ridge) I) T, largest mu first.

    In the coordinates B = V Lambda^1/2 of K = V Lambda V^T (numerically zero eigenvalues dropped):
    S = 1/2 sum_ij W_ij (b_i - b_j)(b_i - b_j)^T with the weights of `kself_weights`, and
    S_t = sum_i (b_i - mean)(b_i - mean)^T over all n samples.

    Returns
    -------
    mu : the r largest eigenvalues, descending
    a : (n, r) coefficients V Lambda^-1/2 T[:, :r], T^T (right-hand matrix) T = I
    F : (n, r) training features B T[:, :r]
    """
    lam, V = _kept_eigenpairs(K)
    B = V @ np.diag(np.sqrt(lam))
    W_lw, W_lb = kself_weights(K, codes, local_neighbor)
    S_lw = _pairwise_scatter(B, W_lw)
    S_lb = _pairwise_scatter(B, W_lb)
    mean = B.mean(axis=0)
    S_t = np.zeros_like(S_lw)
    for b in B:
        S_t += np.outer(b - mean, b - mean)
    S_rb = (1.0 - beta) * S_lb + beta * S_t
    S_rw = (1.0 - beta) * S_lw + (beta + ridge) * np.eye(len(lam))
    mu, T = scipy.linalg.eigh(S_rb, S_rw)
    mu, T = mu[::-1][:r], T[:, ::-1][:, :r]
    return mu, V @ np.diag(1.0 / np.sqrt(lam)) @ T, B @ T


def klpp(K, W, ridge, r):
    """B^T L B w = mu (B^T D B + ridge I) w, L = D - W, smallest mu first, B = V Lambda^1/2 as in `kself`.

    Returns
    -------
    mu : the r smallest eigenvalues, ascending
    a : (n, r) coefficients V Lambda^-1/2 w, w^T (right-hand matrix) w = I
    F : (n, r) training features B w
    """
    lam, V = _kept_eigenpairs(K)
    B = V @ np.diag(np.sqrt(lam))
    D = np.diag(W.sum(axis=1))
    left = _symmetric(B.T @ (D - W) @ B)
    right = _symmetric(B.T @ D @ B + ridge * np.eye(len(lam)))
    mu, w = scipy.linalg.eigh(left, right)
    mu, w = mu[:r], w[:, :r]
    return mu, V @ np.diag(1.0 / np.sqrt(lam)) @ w, B @ w


# ---------------------------------------------------------------------------------------------------------
# EnFS


def enfs_targets(codes):
    """Y_it = +1 where sample i is of class t, else -1 (m x c, labelled samples only, classes in order)."""
    codes = np.asarray(codes)
    if codes.min() < 0:
        raise ValueError("enfs takes labelled samples only")
    return np.array([[1.0 if code == t else -1.0 for t in _classes(codes)] for code in codes])


def norm_21(W):
    """||W||_21 = sum over rows of the Euclidean norm of the row."""
    return sum(np.sqrt(np.dot(row, row)) for row in W)


def _enfs_losses(X, Y, Ws, bs):
    """The two losses: |X W_1 + 1 b_1 - Y|_F^2 and sum max(0, 1 - Y * (X W_2 + 1 b_2))^2."""
    residual = X @ Ws[0] + bs[0] - Y
    slack = np.maximum(0.0, 1.0 - Y * (X @ Ws[1] + bs[1]))
    return np.sum(residual**2), np.sum(slack**2)


def enfs_objective(X, Y, Ws, bs, alpha, beta):
    """sum_v loss_v(W_v, b_v) + alpha sum_v ||W_v||_21 + beta ||[W_1 W_2]||_21.

    Parameters
    ----------
    X : (m, d) labelled samples
    Y : (m, c) targets in {-1, +1}
    Ws, bs : two weight matrices (d, c) and two intercepts (1, c), v = 1 for least squares
        |X W + 1 b - Y|_F^2, v = 2 for the squared hinge sum max(0, 1 - Y * (X W + 1 b))^2
    """
    separate = norm_21(Ws[0]) + norm_21(Ws[1])
    joint = norm_21(np.hstack([Ws[0], Ws[1]]))
    return float(sum(_enfs_losses(X, Y, Ws, bs)) + alpha * separate + beta * joint)


def _shrink(v, t):
    """max(0, 1 - t / |v|) v: proximal operator of t |v|."""
    norm = np.sqrt(np.dot(v, v))
    return np.zeros_like(v) if norm <= t else (1.0 - t / norm) * v


def enfs_prox(Ws, alpha, beta):
    """argmin_U 1/2 sum_v |U_v - W_v|_F^2 + alpha sum_v ||U_v||_21 + beta ||[U_1 U_2]||_21.

    Row by row; the groups w_1i and w_2i are nested in [w_1i w_2i], so the proximal operator is that of the
    inner groups (threshold alpha) followed by that of the outer one (threshold beta).
    """
    d, c = Ws[0].shape
    U = [np.zeros((d, c)), np.zeros((d, c))]
    for i in range(d):
        inner = np.concatenate([_shrink(Ws[0][i], alpha), _shrink(Ws[1][i], alpha)])
        outer = _shrink(inner, beta)
        U[0][i], U[1][i] = outer[:c], outer[c:]
    return U


def enfs_minimize(X, Y, alpha, beta, rtol=1e-12, window=100, max_iter=200_000):
    """argmin over (W_1, b_1), (W_2, b_2) of `enfs_objective`, by FISTA with restarts.

    With the columns of X centered (which only moves the unpenalised intercepts) the Hessian of either loss is
    at most 2 [X 1]^T [X 1] = diag(2 X^T X, 2 m), so 1 / (2 sigma_max(X)^2) and 1 / (2 m) are safe steps for W
    and b. Momentum restarts whenever the objective rises. Stops when the lowest objective has fallen by less
    than rtol (relative) over ``window`` iterations.

    Returns
    -------
    Ws, bs, objective : two (d, c) matrices, two (1, c) intercepts for X as given, and the minimum
    """
    X = np.asarray(X, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.float64)
    m, d = X.shape
    c = Y.shape[1]
    mean = X.mean(axis=0, keepdims=True)
    Xc = X - mean
    sigma_max = np.linalg.norm(Xc, 2)
    step_w = 1.0 / (2.0 * sigma_max**2) if sigma_max > 0.0 else 1.0
    step_b = 1.0 / (2.0 * m)

    Ws, bs = [np.zeros((d, c)), np.zeros((d, c))], [np.zeros((1, c)), np.zeros((1, c))]
    Us, us = Ws, bs  # the extrapolated point
    momentum = 1.0
    history = [enfs_objective(Xc, Y, Ws, bs, alpha, beta)]
    for _ in range(max_iter):
        # derivative of each loss with respect to its scores X U + 1 u
        g_square = 2.0 * (Xc @ Us[0] + us[0] - Y)
        g_hinge = -2.0 * Y * np.maximum(0.0, 1.0 - Y * (Xc @ Us[1] + us[1]))
        gradients = [g_square, g_hinge]
        new_Ws = enfs_prox(
            [U - step_w * Xc.T @ g for U, g in zip(Us, gradients, strict=True)], step_w * alpha, step_w * beta
        )
        new_bs = [u - step_b * g.sum(axis=0, keepdims=True) for u, g in zip(us, gradients, strict=True)]
        value = enfs_objective(Xc, Y, new_Ws, new_bs, alpha, beta)
        if value > history[-1] and momentum > 1.0:
            Us, us, momentum = Ws, bs, 1.0  # reject, restart from the last accepted point
            continue
        new_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        weight = (momentum - 1.0) / new_momentum
        Us = [new + weight * (new - old) for new, old in zip(new_Ws, Ws, strict=True)]
        us = [new + weight * (new - old) for new, old in zip(new_bs, bs, strict=True)]
        Ws, bs, momentum = new_Ws, new_bs, new_momentum
        history.append(value)
        if len(history) > window and history[-window - 1] - history[-1] <= rtol * abs(history[-1]):
            bs = [b - mean @ W for b, W in zip(bs, Ws, strict=True)]
            return Ws, bs, enfs_objective(X, Y, Ws, bs, alpha, beta)
    raise RuntimeError(f"no convergence in {max_iter} iterations")


# ---------------------------------------------------------------------------------------------------------
# scores


def average_precision(positive, scores):
    """AP = sum_k (R_k - R_(k-1)) P_k over the distinct scores, highest first; tied samples enter together."""
    positive = np.asarray(positive, dtype=bool)
    scores = np.asarray(scores, dtype=np.float64)
    total = 0.0
    last_recall = 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        hits = np.sum(chosen & positive)
        recall = hits / np.sum(positive)
        total += (recall - last_recall) * hits / np.sum(chosen)
        last_recall = recall
    return float(total)


def mean_average_precision(codes, scores):
    """MAP = mean over classes t of AP(codes = t, scores[:, t]).

    Rows with code -1 are ignored, and so are classes with no row left.
    """
    codes = np.asarray(codes)
    scores = np.asarray(scores, dtype=np.float64)
    labelled = codes >= 0
    values = [average_precision(codes[labelled] == t, scores[labelled, t]) for t in _classes(codes)]
    return float(np.mean(values))


# ---------------------------------------------------------------------------------------------------------
# active learning


def gaussian_process(Z, labelled, noise):
    """Posterior covariance of the scores of all rows: K - K_l (K_ll + noise I)^-1 K_l^T with K = Z Z^T."""
    K = Z @ Z.T
    labelled = np.asarray(labelled, dtype=int)
    inverse = np.linalg.inv(K[np.ix_(labelled, labelled)] + noise * np.eye(len(labelled)))
    return K - K[:, labelled] @ inverse @ K[labelled, :]


def gaussian_process_mean(Z, labelled, targets, noise):
    """Posterior mean of the scores of all rows: K_l (K_ll + noise I)^-1 targets."""
    K = Z @ Z.T
    return K[:, labelled] @ np.linalg.inv(K[np.ix_(labelled, labelled)] + noise * np.eye(len(labelled))) @ targets


def vopt(Z, labelled, noise):
    """Decrease of the trace of the posterior covariance by a label of each row."""
    before = np.trace(gaussian_process(Z, labelled, noise))
    return np.array([before - np.trace(gaussian_process(Z, [*labelled, q], noise)) for q in range(len(Z))])


def sigmaopt(Z, labelled, noise):
    """Decrease of the sum of all entries of the posterior covariance by a label of each row."""
    before = gaussian_process(Z, labelled, noise).sum()
    return np.array([before - gaussian_process(Z, [*labelled, q], noise).sum() for q in range(len(Z))])


def expected_error(Z, codes, log_p, gain, noise, q):
    """Expected mean of 1 - max probability over all rows: a refit with each label of q, weighted by its probability.

    Scores are log_p, changed by gain times the change of the posterior mean with targets of 1 and -1.
    """
    labelled = np.flatnonzero(codes >= 0)
    classes = np.arange(len(gain))

    def mean(rows, given):
        return gaussian_process_mean(Z, rows, np.where(given[:, None] == classes, 1.0, -1.0), noise)

    before, total = mean(labelled, codes[labelled]), 0.0
    for label in classes:
        after = mean(np.append(labelled, q), np.append(codes[labelled], label))
        p = np.exp(log_p + gain * (after - before))
        p /= p.sum(axis=1, keepdims=True)
        total += np.exp(log_p[q, label]) * np.mean(1 - p.max(axis=1))
    return total


def herding(Z, candidates, labelled, weights, power, n):
    """Candidates with the largest weight times added coverage, max over chosen rows of max(0, cosine)^power."""
    chosen, left = [], list(candidates)

    def cover(x, rows):
        cosines = [Z[x] @ Z[q] / (np.linalg.norm(Z[x]) * np.linalg.norm(Z[q])) for q in rows]
        return max([0.0, *(max(0.0, cosine) ** power for cosine in cosines)])

    for _ in range(n):
        rows = [*labelled, *chosen]
        gains = [weights[q] * sum(cover(x, [*rows, q]) - cover(x, rows) for x in range(len(Z))) for q in left]
        chosen.append(left.pop(int(np.argmax(gains))))
    return chosen
