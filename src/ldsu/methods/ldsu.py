"""Local discriminant structure uncovering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from ldsu._utils.fitting import atomic
from ldsu._utils.stages import Stages
from ldsu.graphs import class_laplacian, local_discriminant_graph
from ldsu.kernels import INPUT_SPACE_KERNELS, Kernel
from ldsu.labels import class_counts, sample_labelled_balanced, sample_others
from ldsu.methods._base import KernelFeatures, parameters
from ldsu.methods._leave_one_out import choose
from ldsu.solvers import FILTERS, MEMORY, SOLVERS, Settings, filtered_labelled_kernel, reason_against
from ldsu.spectrum import KernelBasis

# What graphs may weigh at most, so that squares of what they are multiplied with stay numbers.
MOST_WEIGHT = 1e100
# What "auto" keeps of the rank with the paper's filter; the smooth filters keep every anchored feature.
TRUNCATE_FRACTION = 0.5
# What "auto" stands for, and what it tries beside it where labels can tell: bandwidths with strengths, from a graph
# that is trusted to none. docs/parameters.md has the figures.
GAMMA_SCALE, STRENGTH, NOISE = 2.0, 100.0, 0.01
TRIED = ((GAMMA_SCALE, STRENGTH), (2.0, 1000.0), (2.0, 0.0), (0.5, 100.0), (0.5, 10.0), (0.5, 0.0))
TRIED_STRENGTHS = (STRENGTH, 1000.0, 10.0, 0.0)
# With fewer labels in the median class, leaving one out tells too little.
LABELS_TO_CHOOSE = 3
# Rows, and labelled rows among them, that the choice is made on.
ROWS_TO_CHOOSE, LABELLED_TO_CHOOSE = 2000, 500
# Above so many samples the sparse solver is the faster one: docs/decisions.md.
SPARSE_ROWS = 3000


@parameters
class LDSU(KernelFeatures):
    """Features from many samples and few labels: ``min tr(a^T K (L_w + lam L) K a)`` subject to ``a^T K a = I``.

    K is the kernel matrix of all n samples, L_w the Laplacian of the graph that joins labelled points of one class,
    and ``L = sum_i S_i H (G_i + theta I)^-1 H S_i^T`` the local discriminant Laplacian, with one term for each
    sample's clique of nearest neighbours and G_i the clique's centred Gram matrix. Directions that are smooth on both
    graphs have a small eigenvalue mu; the filter says what is kept of each.

    Parameters
    ----------
    n_components : int, float, None or "auto", default="auto"
        Features to keep: a count, a fraction of those there are, or all of them (None). There are as many as K has
        rank with ``filter="truncate"`` (where all of them are kernel PCA rotated, whatever the other parameters), and
        as many as there are anchors with the smooth filters. "auto" is 0.5 with "truncate" and all otherwise.
    filter : {"tikhonov", "heat", "truncate"}, default="tikhonov"
        "truncate" keeps the r smallest mu, as Algorithm 1 of the paper; "tikhonov" weighs each direction by ``1 / (1
        + strength mu)`` and costs one linear solve; "heat" by ``exp(-strength mu)``. With the last two the features
        are those of the filtered kernel seen from the anchors, without loss for a classifier trained on labelled
        points.
    strength : float or "auto", default="auto"
        Of the smooth filters: how much the graphs count against the kernel, 0 for not at all. "auto" is 100; with
        ``filter="tikhonov"``, ``scaling="relative"`` and at least three labels in the median class it is chosen among
        0, 10, 100 and 1,000 by how well the labelled samples foretell each other (leave-one-out, in closed form, on at
        most 2,000 rows). Where neighbours are often of another class that turns the graph down. With a `basis` nothing
        is chosen.
    lam : float, default=1.0
        Weight of the local discriminant graph against the same-class graph.
    clique_size : int, default=3
        k, samples in a clique, the sample itself included; at most n. 1 switches the local graph off.
    theta : float, default=0.1
        Ridge of the cliques, > 0.
    scaling : {"relative", "absolute"}, default="relative"
        "relative" makes the parameters mean the same on all data: theta in units of the mean clique scatter, L
        divided by the mean of its diagonal, strength by the mean diagonal of K. "absolute" takes the paper's formulas
        as they stand.
    cliques : {"auto", "input", "kernel"}, default="auto"
        Space of neighbours and cliques. "auto" is the input space for rbf and linear, whose neighbours are Euclidean,
        and the kernel's feature space for every other kernel.
    min_anchors : int, default=200
        With a smooth filter and fewer labelled samples than this, landmarks are added as anchors.
    solver : {"auto", "exact", "sparse"}, default="auto"
        "exact" forms the n x n kernel matrix. "sparse" takes time and memory in proportion to n: landmarks carry the
        global part of the kernel, nearest neighbours the local one; it is for ``kernel="rbf"``, and for
        ``filter="tikhonov"`` or "truncate" with at most 500 features. "auto" is "sparse" for dense samples with
        "tikhonov" and n above 3,000 where that serves, else "exact".
    n_landmarks : int, optional
        Of the sparse solver: landmarks beside the labelled samples, which always are (1,000 of them, the classes in
        turn, where there are more: the features then see labelled samples through these). None is ``2,000,000 / n``,
        between 100 and 500.
    landmark_noise : float, optional
        Of the sparse solver: noise with which landmarks are seen, in units of k(x, x). The less, the more of the kernel
        is taken as global; the more, the more is left to neighbours. Less is better where neighbours are often of
        another class. None is ``n / 50,000``.
    n_conditioning : int, default=15
        Of the sparse solver: nearest neighbours that a sample is conditioned on, at most; no more than 2,000 where
        there are as many. With n - 1 and small `nugget` and `tol` the result is that of the exact solver.
    nugget : float, default=0.01
        Of the sparse solver: noise of the kernel's local part, in units of k(x, x). More makes the linear solves faster
        where samples lie very close together.
    tol : float, default=1e-2
        Of the sparse solver: relative residual of its linear solves, or of its eigenvectors with "truncate". Below
        1e-5, and where strength is very large, it works in double precision.
    max_iter : int, default=1000
        Of the sparse solver: most iterations of its linear solves.
    neighbor_search : {"auto", "exact", "cells"}, default="auto"
        Of the sparse solver: "exact" compares all pairs of samples, in time that grows with n², "cells" those of the
        cells around each sample, and finds 97 to 99 of 100 true neighbours. "auto" is "exact" up to 8,000 samples.
    random_state : int, default=0
        Of the sparse solver: order of the samples and choice of landmarks.
    device : {"cpu", "cuda", "cuda:N", "torch"}, default="cpu"
        "cuda" works on a GPU through PyTorch, NumPy in and out; "torch" is the same code without a GPU. Of the exact
        solver, chi2, precomputed and callable kernels, and those of sparse X, are computed on the CPU and moved.
    store_graphs : bool, default=False
        Keep the two Laplacians as `class_laplacian_` and `clique_laplacian_`, and the neighbours that the sparse solver
        searched as `neighbors_`.
    {kernel parameters}

    Attributes
    ----------
    strength_ : float
        The strength used.
    noise_ : float
        Ridge of a linear classifier on the features, in units of the mean squared norm of the labelled samples', that
        was chosen with the strength; 0.01 where nothing was chosen.
    selection_ : list of dict or None
        What was tried, the choice first: "gamma_scale", "strength", "noise", the "criterion" that they were compared
        by, and the "accuracy" for labels left out; None where nothing was chosen.
    solver_ : {"exact", "sparse"}
        The solver used.
    coef_ : ndarray of shape (n, r) or None
        Coefficients of the exact solver: features are ``k(x, X) @ coef_``.
    n_iter_ : int
        Iterations of the sparse solver's linear solves; 1 with "exact".
    residual_ : float
        Their largest relative residual.
    eigenvalues_ : ndarray of shape (r,)
        With "truncate" the kept mu, ascending; otherwise the sums of squares of the features over the anchors,
        descending.
    anchors_ : ndarray of int or None
        Rows of X that the features of a smooth filter are anchored at: the labelled ones first.
    gamma_ : float or None
        The bandwidth used.
    theta_ : float
        The ridge used, in the units of the cliques' space.
    clique_size_ : int
        The clique size used.
    class_laplacian_, clique_laplacian_ : sparse arrays of shape (n, n)
        L_w, and L as lam multiplies it. Only with ``store_graphs=True``.
    neighbors_ : ndarray of shape (n, l) or None
        The nearest other rows of each row, nearest first. Only with ``store_graphs=True`` and the sparse solver.
    classes_ : ndarray of shape (c,)
        The labels seen.
    timings_ : dict of str to float
        Seconds of each stage of `fit`.

    See Also
    --------
    LDSUClassifier : These features and a linear classifier in one.
    KernelBasis : Fit many times with other labels or parameters without decomposing the kernel again.

    References
    ----------
    S. Wang, F. Nie, X. Chang, X. Li, Q. Z. Sheng, L. Yao: Uncovering locally discriminative structure for feature
    analysis. ECML PKDD 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ldsu import LDSU
    >>> X, y = load_digits(return_X_y=True)
    >>> y[100:] = -1
    >>> LDSU().fit(X, y).transform(X[:5]).shape
    (5, 200)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelFeatures._parameter_constraints,
        "n_components": [*KernelFeatures._parameter_constraints["n_components"], StrOptions({"auto"})],
        "filter": [StrOptions(set(FILTERS))],
        "strength": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "gamma_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "lam": [Interval(Real, 0, None, closed="left")],
        "clique_size": [Interval(Integral, 1, None, closed="left")],
        "theta": [Interval(Real, 0, None, closed="neither")],
        "scaling": [StrOptions({"relative", "absolute"})],
        "cliques": [StrOptions({"auto", "input", "kernel"})],
        "min_anchors": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions({"auto", *SOLVERS})],
        "n_landmarks": [Interval(Integral, 0, None, closed="left"), None],
        "landmark_noise": [Interval(Real, 0, None, closed="left"), None],
        "n_conditioning": [Interval(Integral, 1, None, closed="left")],
        "nugget": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "neighbor_search": [StrOptions({"auto", "exact", "cells"})],
        "random_state": [Interval(Integral, 0, None, closed="left")],
        "device": [str],
        "store_graphs": ["boolean"],
    }

    n_components: int | float | str | None = field(default="auto", kw_only=False)
    filter: str = "tikhonov"
    strength: float | Literal["auto"] = "auto"
    lam: float = 1.0
    clique_size: int = 3
    theta: float = 0.1
    scaling: str = "relative"
    cliques: str = "auto"
    min_anchors: int = 200
    solver: str = "auto"
    n_landmarks: int | None = None
    landmark_noise: float | None = None
    n_conditioning: int = 15
    nugget: float = 0.01
    tol: float = 1e-2
    max_iter: int = 1000
    neighbor_search: str = "auto"
    random_state: int = 0
    device: str = "cpu"
    store_graphs: bool = False
    gamma_scale: float | Literal["auto"] = "auto"

    @atomic
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, basis: KernelBasis | None = None) -> Self:
        """Learn the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Samples, labelled and unlabelled; with ``kernel="precomputed"`` the kernel matrix (n, n).
        y : array-like of shape (n,), optional
            Labels; -1, None, NaN or pandas.NA where there is none. Without any label the features are unsupervised.
        basis : KernelBasis, optional
            The decomposed kernel matrix of these samples, to save decomposing it again.

        Returns
        -------
        self : object
        """
        if reason := reason_against_weight(self.lam, self.strength):
            raise ValueError(reason)
        return self._fit(X, y, basis=basis)

    def _resolve_kernel(self, X: Any, gamma_scale: float | str) -> Kernel:
        return super()._resolve_kernel(X, GAMMA_SCALE if isinstance(gamma_scale, str) else gamma_scale)

    def _choose(
        self, X: Any, codes: np.ndarray, kernel: Kernel, stages: Stages, basis: KernelBasis | None = None, **extra: Any
    ) -> Kernel:
        self.strength_, self.noise_ = resolve_strength(self.strength), NOISE
        self.selection_: list[dict[str, float]] | None = None
        counts = class_counts(codes)
        can_tell = counts.size > 1 and np.median(counts) >= LABELS_TO_CHOOSE
        choosable = self.filter == "tikhonov" and self.scaling == "relative" and basis is None
        if self.strength != "auto" or not (can_tell and choosable):
            return kernel
        with_gamma = self.gamma_scale == "auto" and self.gamma == "median" and kernel.gamma is not None
        given = GAMMA_SCALE if isinstance(self.gamma_scale, str) else float(self.gamma_scale)
        tried = TRIED if with_gamma else tuple((given, strength) for strength in TRIED_STRENGTHS)

        def rescaled(gamma_scale: float) -> Kernel:
            return replace(kernel, gamma=kernel.gamma * gamma_scale / given) if kernel.gamma else kernel

        with stages("choice of strength"):
            rows = self._rows_to_choose(codes)
            X_some = X[np.ix_(rows, rows)] if kernel.name == "precomputed" else X[rows]
            labelled = np.flatnonzero(codes[rows] >= 0)
            kernels = self._filtered_kernels(X_some, labelled, tried, rescaled)
            trusted = [i for i, (_, strength) in enumerate(tried) if strength >= STRENGTH]
            order = choose(kernels, np.unique(codes[rows][labelled], return_inverse=True)[1], trusted)
            self.noise_ = order[0].noise
            gamma_scale, self.strength_ = tried[order[0].number]
            names = ("gamma_scale", "strength", "noise", "criterion", "accuracy")
            self.selection_ = [
                dict(zip(names, (*tried[one.number], one.noise, one.criterion, one.accuracy), strict=True))
                for one in order
            ]
        return rescaled(gamma_scale)

    def _rows_to_choose(self, codes: np.ndarray) -> np.ndarray:
        """The labelled rows, and others at random up to what the choice is made on."""
        rng = np.random.default_rng(self.random_state)
        labelled = sample_labelled_balanced(codes, LABELLED_TO_CHOOSE, rng)
        every = np.flatnonzero(codes >= 0)
        others = sample_others(codes.size, every, max(0, ROWS_TO_CHOOSE - labelled.size), rng)
        return np.sort(np.concatenate([labelled, others]))

    def _filtered_kernels(
        self,
        X: Any,
        labelled: np.ndarray,
        tried: tuple[tuple[float, float], ...],
        rescaled: Callable[[float], Kernel],
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Each filtered kernel among the labelled rows, without the same-class graph, which knows the labels."""
        settings = self._settings(X.shape[0])
        for gamma_scale in dict.fromkeys(scale for scale, _ in tried):
            K = rescaled(gamma_scale).train_matrix(X)
            L, _ = local_discriminant_graph(
                X,
                K if settings.cliques_in_kernel_space else None,
                clique_size=settings.clique_size,
                theta=settings.theta,
                relative=True,
            )
            for number, (scale, strength) in enumerate(tried):
                if scale == gamma_scale:
                    yield number, filtered_labelled_kernel(K, L, labelled, strength * settings.lam)

    def _learn(
        self, X: Any, codes: np.ndarray, kernel: Kernel, stages: Stages, basis: KernelBasis | None = None
    ) -> None:
        self._at_most(self.clique_size, X.shape[0], "clique_size")
        settings = self._settings(X.shape[0], self.strength_)
        if basis is not None:
            basis.check_matches(X, kernel)
        self.solver_ = self._choose_solver(X, settings, basis)
        solution = SOLVERS[self.solver_](X, codes, kernel, settings, basis=basis, stages=stages)
        self.coef_ = solution.coefficients
        self.n_iter_ = solution.iterations
        self.residual_ = solution.residual
        self.eigenvalues_ = solution.eigenvalues
        self.anchors_ = solution.anchors
        self.theta_ = solution.theta
        self.clique_size_ = settings.clique_size
        self.feature_map_: Callable[[Any], np.ndarray] = solution.feature_map
        if self.store_graphs:
            self.class_laplacian_ = class_laplacian(codes)
            self.clique_laplacian_ = solution.clique_laplacian()
            self.neighbors_ = solution.neighbors

    def _memory(self, X: Any, codes: np.ndarray, basis: KernelBasis | None = None) -> int:
        settings = self._settings(X.shape[0])
        return MEMORY[self._choose_solver(X, settings, basis)](X, codes, settings, basis=basis)

    def _choose_solver(self, X: Any, settings: Settings, basis: KernelBasis | None) -> str:
        if self.solver != "auto":
            return self.solver
        serves = settings.filter == "tikhonov" and reason_against(X, self.kernel, settings, basis) is None
        serves = serves and not scipy.sparse.issparse(X)
        return "sparse" if serves and X.shape[0] > SPARSE_ROWS else "exact"

    def _settings(self, n: int, strength: float | None = None) -> Settings:
        n_components = self.n_components
        if isinstance(n_components, str):  # "auto"
            n_components = TRUNCATE_FRACTION if self.filter == "truncate" else None
        by_kernel = "input" if self.kernel in INPUT_SPACE_KERNELS else "kernel"
        space = by_kernel if self.cliques == "auto" else self.cliques
        if space == "input" and self.kernel == "precomputed":
            raise ValueError("With a precomputed kernel there is no input space: use cliques='kernel' or 'auto'.")
        return Settings(
            clique_size=min(self.clique_size, n),
            cliques_in_kernel_space=space == "kernel",
            theta=float(self.theta),
            relative=self.scaling == "relative",
            lam=float(self.lam),
            filter=self.filter,
            strength=resolve_strength(self.strength) if strength is None else strength,
            n_components=n_components,
            min_anchors=min(self.min_anchors, n),
            n_landmarks=self.n_landmarks,
            landmark_noise=None if self.landmark_noise is None else float(self.landmark_noise),
            n_conditioning=min(self.n_conditioning, n - 1),
            nugget=float(self.nugget),
            tol=float(self.tol),
            max_iter=self.max_iter,
            neighbor_search=self.neighbor_search,
            seed=self.random_state,
            device=self.device,
        )


def reason_against_weight(lam: float, strength: float | str) -> str | None:
    """What to say where the graphs outweigh what numbers can hold; None where they do not."""
    strength = resolve_strength(strength)
    if max(1.0, lam) <= MOST_WEIGHT / max(1.0, strength):
        return None
    return (
        f"lam = {lam:g} and strength = {strength:g} are too large together: lam times strength, or one of them alone, "
        f"may be {MOST_WEIGHT:g} at most. Lower them."
    )


def resolve_strength(strength: float | str) -> float:
    """A strength as it is where no labels choose it."""
    return STRENGTH if isinstance(strength, str) else float(strength)
