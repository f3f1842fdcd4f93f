"""Local discriminant structure uncovering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context
from sklearn.utils._param_validation import StrOptions

from ldsu._utils.arrays import arrays_of, arrays_on
from ldsu._utils.fitting import atomic
from ldsu._utils.memory import GIB, available_memory, require_memory
from ldsu._utils.parameters import Count, Fraction, NonNegative, Positive, parameters
from ldsu._utils.stages import Stages
from ldsu._utils.temporary import FileArrays, require_disk, temporary_folder
from ldsu.graphs import class_laplacian
from ldsu.kernels import (
    GAMMA_KERNELS,
    INPUT_SPACE_KERNELS,
    Kernel,
    check_magnitude,
    samples_memory,
    validate_data,
)
from ldsu.labels import class_counts, encode_labels, sample_labelled_balanced, sample_others
from ldsu.methods._base import KernelFeatures
from ldsu.methods._leave_one_out import choose
from ldsu.methods._sample_kinds import embedding_likeness, sample_rows
from ldsu.solvers import (
    MEMORY,
    SOLVERS,
    AddedRows,
    Problem,
    Settings,
    Solution,
    arrays_in_files,
    disk_with_files,
    filtered_labelled_kernel,
    memory_with_files,
    unsupported_reason,
)

# Maximum weight of the graphs, to avoid overflow of squares.
MAX_WEIGHT = 1e100
# Fraction of the rank kept by n_components="auto" with "truncate"; smooth filters keep all features.
TRUNCATE_FRACTION = 0.5
# Defaults of "auto", and the candidates (gamma_scale, strength) it chooses from with enough labels; strength 0 ignores
# the graph. See docs/parameters.md for measurements.
GAMMA_SCALE, STRENGTH, NOISE = 2.0, 100.0, 0.01
CANDIDATES = ((GAMMA_SCALE, STRENGTH), (2.0, 1000.0), (2.0, 0.0), (0.5, 100.0), (0.5, 10.0), (0.5, 0.0))
CANDIDATE_STRENGTHS = (STRENGTH, 1000.0, 10.0, 0.0)
# The same for samples that look like embeddings, whose nearest neighbors say less.
EMBEDDING_CANDIDATES = ((2.0, 10.0), (2.0, 100.0), (2.0, 0.0), (0.5, 100.0), (0.5, 10.0), (0.5, 0.0))
EMBEDDING_STRENGTHS = (10.0, 100.0, 1000.0, 0.0)
# Logarithms of the prior of candidates with at least strength `STRENGTH`, and with less, relative to the first and in
# units of the logarithm of the number of classes, which a label is worth; of embeddings the former for all.
LOG_PRIOR_STRONG, LOG_PRIOR_WEAK = -1.5, -4.0
# With fewer labels in the median class nothing can be left out.
MIN_LABELS_TO_CHOOSE = 2
# Maximum number of rows, and of labelled rows among them, used for the choice.
ROWS_TO_CHOOSE, LABELLED_TO_CHOOSE = 2000, 500
# Above this many samples the sparse solver is faster: docs/decisions.md.
SPARSE_ROWS = 3000


class Plan(NamedTuple):
    """How a fit stays within memory.

    Attributes
    ----------
    solver : {"exact", "sparse"}
    memory, disk : int
        Bytes of memory and of temporary files that are needed.
    arrays : FileArrays or None
        Where arrays with a row per sample are, if not in memory.
    """

    solver: str
    memory: int
    disk: int
    arrays: FileArrays | None


@parameters
class LDSU(Settings, KernelFeatures):
    """Local discriminant structure uncovering: ``min tr(a^T K (L_w + lam L) K a)`` subject to ``a^T K a = I``.

    Semi-supervised features from many samples and few labels. K is the kernel matrix of all n samples, L_w the
    Laplacian of the graph that joins labelled points of the same class, and ``L = sum_i S_i H (G_i + theta I)^-1 H
    S_i^T`` the local discriminant Laplacian, with one term per sample for its clique of nearest neighbors and G_i the
    clique's centered Gram matrix. Directions that are smooth on both graphs have small eigenvalues mu; the filter
    weights each direction.

    Parameters
    ----------
    n_components : int, float, None or "auto", default="auto"
        Number of features to keep: a count, a fraction of the available features, or all (None). The available number
        is the rank of K with ``filter="truncate"`` (keeping all is then a rotation of kernel PCA), and the number of
        anchors with the smooth filters. "auto" is 0.5 with "truncate" and all otherwise.
    filter : {"tikhonov", "heat", "truncate"}, default="tikhonov"
        "truncate" keeps the r smallest mu (Algorithm 1 of the paper); "tikhonov" weights each direction by ``1 / (1
        + strength mu)`` and needs one linear solve; "heat" by ``exp(-strength mu)``. With the last two the features
        represent the filtered kernel at the anchors, without loss for a classifier trained on labelled points.
    strength : float or "auto", default="auto"
        Weight of the graphs relative to the kernel in the smooth filters; 0 ignores the graphs. "auto" is 100, or, with
        ``filter="tikhonov"`` and ``scaling="relative"``, 10 for dense samples with hundreds of continuous columns and
        little local structure, as of embeddings, and with at least two labels in the median class chosen from 0, 10,
        100 and 1,000 by leave-one-out evaluation of the labelled samples (in closed form, on at most 2,000 rows). This
        reduces the weight of the graph if neighbors are often of another class.
    lam : float, default=1.0
        Weight of the local discriminant graph against the same-class graph.
    clique_size : int, default=3
        Number k of samples in a clique, including the sample itself; at most n. 1 disables the local graph.
    theta : float, default=0.1
        Ridge of the cliques, > 0.
    scaling : {"relative", "absolute"}, default="relative"
        "relative" makes parameters comparable between datasets: theta is in units of the mean clique scatter, L is
        divided by its mean diagonal, and strength by the mean diagonal of K. "absolute" uses the paper's formulas
        unchanged.
    cliques : {"auto", "input", "kernel"}, default="auto"
        Space of neighbors and cliques. "auto" is the input space for rbf and linear kernels, whose neighbors are
        Euclidean, and the kernel's feature space for all others.
    min_anchors : int, default=200
        Minimum number of anchors of the smooth filters: landmarks are added to the labelled samples.
    solver : {"auto", "exact", "sparse"}, default="auto"
        "exact" forms the n x n kernel matrix. "sparse" needs time and memory linear in n: landmarks represent the
        global part of the kernel, nearest neighbors the local part. It supports every kernel but "precomputed"
        and functions, dense and sparse samples (which stay sparse), ``filter="tikhonov"``, and "truncate" with at most
        500 features. "auto" is "sparse" with "tikhonov" and n > 3,000 if supported, else "exact".
    n_landmarks : int, optional
        Sparse solver: number of landmarks in addition to the labelled samples, at least 1, whatever the labels. Of the
        labelled samples at most ``2,000,000 / n``, or 50 if that is more, balanced over classes, are landmarks. None is
        ``2,000,000 / n``, between 100 and 500.
    landmark_noise : float, optional
        Sparse solver: noise of landmarks, in units of k(x, x); of labelled landmarks at least `nugget`. Smaller values
        represent more of the kernel globally, larger values leave more to neighbors. Smaller is better if neighbors are
        often of another class. None is ``n / 50,000``.
    n_conditioning : int, default=15
        Sparse solver: maximum number of nearest neighbors that a sample is conditioned on; at most 2,000. With n - 1
        and small `nugget` and `tol` the result is that of the exact solver.
    nugget : float, default=0.01
        Sparse solver: noise of the kernel's local part, in units of k(x, x). Larger values make the linear solves
        faster if samples are very close together.
    tol : float, default=1e-2
        Sparse solver: relative residual of linear solves, or of eigenvectors with "truncate". Below 1e-5, and for very
        large strength, double precision is used.
    max_iter : int, default=1000
        Sparse solver: maximum number of iterations of linear solves.
    neighbor_search : {"auto", "exact", "cells"}, default="auto"
        Sparse solver: "exact" compares all pairs of samples in O(n²) time; "cells" only searches nearby cells, with a
        recall of 97 to 99 %. "auto" is "exact" up to 8,000 samples.
    random_state : int, default=0
        Sparse solver: seed of the order of samples and the choice of landmarks.
    device : {"cpu", "cuda", "cuda:N", "torch"}, default="cpu"
        "cuda" computes on a GPU with PyTorch, with NumPy input and output; "torch" is PyTorch on the CPU. In the exact
        solver, laplacian, chi2, precomputed and callable kernels, and kernels of sparse X, are computed on the CPU; in
        the sparse solver the neighbors of laplacian, chi2 and poly kernels, and of sparse X, are.
    store_graphs : bool, default=False
        Whether to store `class_laplacian_`, `clique_laplacian_` and, with the sparse solver, `neighbors_`.
    {kernel parameters}

    Attributes
    ----------
    strength_ : float
        Strength of the filter.
    noise_ : float
        Ridge of a linear classifier on the features, in units of the mean squared norm of the labelled samples'
        features, chosen together with the strength; 0.01 if nothing was chosen.
    selection_ : list of dict or None
        Candidates, best first: "gamma_scale", "strength", "noise", the "criterion" of the choice and the leave-one-out
        "accuracy"; None if nothing was chosen.
    solver_ : {"exact", "sparse"}
        Solver.
    coef_ : ndarray of shape (n, r) or None
        Coefficients of the exact solver: features are ``k(x, X) @ coef_``.
    n_iter_ : int
        Iterations of the sparse solver's linear solves; 1 with "exact".
    residual_ : float
        Largest relative residual of the linear solves.
    eigenvalues_ : ndarray of shape (r,)
        With "truncate" the kept mu, ascending; otherwise the sums of squares of the features over the anchors,
        descending.
    anchors_ : ndarray of int or None
        Rows of X that are the anchors of a smooth filter, labelled rows first.
    gamma_ : float or None
        Bandwidth.
    theta_ : float
        Ridge of the cliques, in the units of the cliques' space.
    clique_size_ : int
        Clique size.
    class_laplacian_, clique_laplacian_ : sparse arrays of shape (n, n)
        L_w, and L without the factor lam. Only with ``store_graphs=True``.
    neighbors_ : ndarray of shape (n, l) or None
        Nearest other rows of each row, nearest first. Only with ``store_graphs=True`` and the sparse solver.
    classes_ : ndarray of shape (c,)
        Class labels.
    timings_ : dict of str to float
        Seconds of each stage of `fit`.

    See Also
    --------
    LDSUClassifier : LDSU features with a linear classifier.
    Problem : Reuse kernel, neighbors, graphs and spectrum for fits with other labels or parameters.

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

    n_components: Count | Fraction | Literal["auto"] | None = field(default="auto", kw_only=False)  # type: ignore[assignment]
    strength: NonNegative | Literal["auto"] = "auto"  # type: ignore[assignment]
    cliques: Literal["auto", "input", "kernel"] = "auto"  # type: ignore[assignment]
    solver: Annotated[str, StrOptions({"auto", *SOLVERS})] = "auto"
    store_graphs: bool = False
    gamma_scale: Positive | Literal["auto"] = "auto"  # type: ignore[assignment]

    def fit(self, X: Any, y: Any = None, *, problem: Problem | None = None) -> Self:
        """Learn the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Labelled and unlabelled samples; with ``kernel="precomputed"`` the kernel matrix (n, n).
        y : array-like of shape (n,), optional
            Labels; -1, None, NaN or pandas.NA for unlabelled rows. Without any label the features are unsupervised.
        problem : Problem, optional
            Stages computed by earlier fits to these samples, which are reused, and kept for later fits.

        Returns
        -------
        self : object
        """
        return self._fit_keeping([], X, y, problem)

    def fit_transform(self, X: Any, y: Any = None, *, problem: Problem | None = None) -> NDArray[np.floating]:
        """Learn the features, and compute those of the training samples: with the sparse solver, without a new search.

        Parameters
        ----------
        X, y, problem
            As in `fit`.

        Returns
        -------
        features : ndarray of shape (n, r)
        """
        features = self.fit_transform_on_device(X, y, problem=problem)
        return arrays_of(features).get(features)

    def fit_transform_on_device(self, X: Any, y: Any = None, *, problem: Problem | None = None) -> Any:
        """`fit_transform`, with the features where they were computed: a tensor, or an array in main memory."""
        kept: list[Callable[[], Any] | None] = []
        self._fit_keeping(kept, X, y, problem)
        return self.transform(X) if kept[0] is None else kept[0]()

    @atomic
    @_fit_context(prefer_skip_nested_validation=True)
    def _fit_keeping(self, kept: list[Any], X: Any, y: Any, problem: Problem | None) -> Self:
        """Fit, and keep a function for the features of the training samples."""
        if reason := graph_weight_error(self.lam, self.strength):
            raise ValueError(reason)
        kept.append(self._fit(X, y, problem=problem))
        return self

    def _resolve_kernel(self, problem: Problem, gamma_scale: float | str) -> Kernel:
        return super()._resolve_kernel(problem, GAMMA_SCALE if isinstance(gamma_scale, str) else gamma_scale)

    def _validate(self, X: Any, y: Any, problem: Problem | None = None) -> tuple[Any, np.ndarray]:
        if problem is None or self.kernel == "precomputed" or not problem.holds(X):
            return super()._validate(X, y)
        # Valid, as the problem was made of them: only what depends on labels is checked.
        validate_data(self, X, skip_check_array=True)
        problem.once("magnitude", None, lambda: check_magnitude(problem.X, also_small=True))
        codes, self.classes_ = encode_labels(y, problem.n)
        return problem.X, codes

    def _problem(self, X: Any, codes: np.ndarray, stages: Stages, problem: Problem | None = None) -> Problem:
        if problem is None:
            plan = self.plan(X, codes)
            if plan.arrays is not None:
                require_disk(plan.disk, f"LDSU for {X.shape[0]:,} samples")
                stages.say(f"{plan.disk / GIB:.1f} GiB of temporary files in {temporary_folder()}")
            return Problem.once_for(X, arrays=plan.arrays or arrays_on(self.device), stages=stages)
        needed = self._memory(X, codes)
        require_memory(needed, f"LDSU for {X.shape[0]:,} samples in a Problem", "Fit without `problem`.")
        problem.check_samples(X, self.device)
        problem.stages = stages
        return problem

    def _choose(self, problem: Problem, codes: np.ndarray, kernel: Kernel) -> Kernel:
        embedding = self._is_embedding(problem)
        self.strength_ = EMBEDDING_STRENGTHS[0] if embedding else resolve_strength(self.strength)
        self.noise_ = NOISE
        self.selection_: list[dict[str, float]] | None = None
        self._left_out: tuple[np.ndarray, np.ndarray] | None = None
        candidates = self._candidates(codes, embedding)
        if not candidates:
            return kernel
        base_scale = candidates[0][0]

        def rescaled(gamma_scale: float) -> Kernel:
            return replace(kernel, gamma=kernel.gamma * gamma_scale / base_scale) if kernel.gamma else kernel

        with problem.stages("choice of strength"):
            rng = np.random.default_rng(self.random_state)
            labelled = sample_labelled_balanced(codes, LABELLED_TO_CHOOSE, rng)
            filtered = self._filtered_kernel(problem, labelled, kernel)
            kernels = (filtered(rescaled(scale), strength) for scale, strength in candidates)
            present, numbers = np.unique(codes[labelled], return_inverse=True)
            priors = log_priors(candidates, present.size)
            order = choose(zip(range(len(candidates)), kernels, priors, strict=True), numbers, problem.arrays)
            self.noise_ = order[0].noise
            if present.size == class_counts(codes).size:
                self._left_out = labelled, order[0].scores
            gamma_scale, self.strength_ = candidates[order[0].number]
            names = ("gamma_scale", "strength", "noise", "criterion", "accuracy")
            self.selection_ = [
                dict(
                    zip(
                        names,
                        (*candidates[candidate.number], candidate.noise, candidate.criterion, candidate.accuracy),
                        strict=True,
                    )
                )
                for candidate in order
            ]
        return rescaled(gamma_scale)

    def _choose_noise(self, problem: Problem, codes: np.ndarray, solution: Solution) -> None:
        """Leave labels out again and choose the ridge, with the graph of all rows instead of that of some."""
        labelled = sample_labelled_balanced(codes, LABELLED_TO_CHOOSE, np.random.default_rng(self.random_state))
        anchors = np.asarray(solution.anchors)
        order = np.argsort(anchors)
        at = problem.arrays.put(order[np.searchsorted(anchors, labelled, sorter=order)])
        kernel = solution.anchor_kernel[at][:, at]
        present, numbers = np.unique(codes[labelled], return_inverse=True)
        best = choose([(0, (kernel + kernel.T) / 2, 0.0)], numbers, problem.arrays)[0]
        self.noise_ = best.noise
        if present.size == class_counts(codes).size:
            self._left_out = labelled, best.scores

    def left_out_scores(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows and leave-one-out scores (m, c) of the choice in `fit`; None if nothing was chosen, or after loading."""
        return getattr(self, "_left_out", None)

    def _may_choose(self) -> bool:
        """Whether the strength may depend on the samples and labels."""
        return self.strength == "auto" and self.filter == "tikhonov" and self.scaling == "relative"

    def _is_embedding(self, problem: Problem) -> bool:
        """Whether the strength depends on the samples, and they look like embeddings."""
        if not self._may_choose() or self.kernel == "precomputed":
            return False
        return problem.once("embedding", None, lambda: embedding_likeness(sample_rows(problem.X))) > 0.5

    def _candidates(self, codes: np.ndarray, embedding: bool = False) -> tuple[tuple[float, float], ...]:
        """Candidates (gamma_scale, strength) to choose from; none if the strength is given, or labels are few."""
        counts = class_counts(codes)
        enough_labels = counts.size > 1 and np.median(counts) >= MIN_LABELS_TO_CHOOSE
        if not (enough_labels and self._may_choose()):
            return ()
        if self.gamma_scale == "auto" and self.gamma == "median" and self.kernel in GAMMA_KERNELS:
            return EMBEDDING_CANDIDATES if embedding else CANDIDATES
        scale = GAMMA_SCALE if isinstance(self.gamma_scale, str) else float(self.gamma_scale)
        return tuple((scale, strength) for strength in (EMBEDDING_STRENGTHS if embedding else CANDIDATE_STRENGTHS))

    def _filtered_kernel(
        self, problem: Problem, labelled: np.ndarray, kernel: Kernel
    ) -> Callable[[Kernel, float], Any]:
        """A function of kernel and strength: the filtered kernel at labelled rows, on all rows if they are few.

        Of many samples random rows, drawn without labels, are used, to which labelled rows are added.
        """
        n = problem.n
        if n <= ROWS_TO_CHOOSE:
            settings = self._settings(n)
            return lambda some, strength: filtered_labelled_kernel(
                problem, some, settings, strength * settings.lam, labelled
            )

        def draw() -> tuple[Problem, np.ndarray]:
            rng = np.random.default_rng(self.random_state)
            rows = sample_others(n, np.arange(0), ROWS_TO_CHOOSE, rng)
            X = problem.X[np.ix_(rows, rows)] if kernel.name == "precomputed" else problem.X[rows]
            keep = len(CANDIDATES) if problem.reusable else 1
            return Problem.once_for(X, arrays=problem.arrays, keep=keep, reusable=problem.reusable), rows

        base, rows = problem.once("rows_to_choose", (self.random_state, kernel.name == "precomputed"), draw)
        base.stages = problem.stages
        settings = self._settings(rows.size)
        added = AddedRows(problem.X, base, rows, labelled)
        return lambda some, strength: added.filtered_kernel(some, settings, strength * settings.lam)

    def _learn(self, problem: Problem, codes: np.ndarray, kernel: Kernel) -> Callable[[], Any] | None:
        self._clip_parameter(self.clique_size, problem.n, "clique_size")
        settings = self._settings(problem.n, self.strength_)
        self.solver_ = self._choose_solver(problem.X, settings)
        solution = SOLVERS[self.solver_](problem, codes, kernel, settings)
        if self.selection_ is not None and solution.anchor_kernel is not None and problem.n > ROWS_TO_CHOOSE:
            self._choose_noise(problem, codes, solution)
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
        return solution.training

    def plan(self, X: Any, codes: np.ndarray) -> Plan:
        """How `fit` to validated samples X (n, d) with class numbers `codes`, -1 where unlabelled, stays in memory."""
        settings = self._settings(X.shape[0])
        solver, available = self._choose_solver(X, settings), available_memory()
        needed = self._memory(X, codes) + samples_memory(X, self.kernel)
        if solver == "sparse" and needed > available:
            if self._candidates(codes):  # the strongest graphs may need double precision
                settings = replace(settings, strength=max(CANDIDATE_STRENGTHS))
            if (arrays := arrays_in_files(X, codes, settings, available)) is not None:
                memory = memory_with_files(X, codes, settings, arrays.columns)
                return Plan(solver, memory, disk_with_files(X, codes, settings), arrays)
        return Plan(solver, needed, 0, None)

    def _needed_memory(self, X: Any, codes: np.ndarray) -> int:
        return self.plan(X, codes).memory

    def _memory(self, X: Any, codes: np.ndarray) -> int:
        n = X.shape[0]
        settings = self._settings(n)
        solver = self._choose_solver(X, settings)
        needed = MEMORY[solver](X, codes, settings)
        if solver == "exact" and n <= ROWS_TO_CHOOSE and self.device == "cpu":
            # The choice keeps its kernels, their products with the graph, and factors; two of these are the solver's.
            candidates = self._candidates(codes)
            kept = 2 * len({scale for scale, _ in candidates}) + sum(strength > 0 for _, strength in candidates)
            needed += 8 * n * n * max(0, kept - 2)
        return needed

    def _choose_solver(self, X: Any, settings: Settings) -> str:
        if self.solver != "auto":
            return self.solver
        supported = settings.filter == "tikhonov" and unsupported_reason(X, self.kernel, settings) is None
        return "sparse" if supported and X.shape[0] > SPARSE_ROWS else "exact"

    def _settings(self, n: int, strength: float | None = None) -> Settings:
        """The parameters of the problem for n samples, "auto" resolved."""
        n_components = self.n_components
        if n_components == "auto":
            n_components = TRUNCATE_FRACTION if self.filter == "truncate" else None
        by_kernel = "input" if self.kernel in INPUT_SPACE_KERNELS else "kernel"
        space = by_kernel if self.cliques == "auto" else self.cliques
        if space == "input" and self.kernel == "precomputed":
            raise ValueError("A precomputed kernel has no input space: use cliques='kernel' or 'auto'.")
        values = {parameter.name: getattr(self, parameter.name) for parameter in fields(Settings)}
        return Settings(
            **values
            | {
                "n_components": n_components,
                "cliques": space,
                "strength": resolve_strength(self.strength) if strength is None else strength,
                "clique_size": min(self.clique_size, n),
                "min_anchors": min(self.min_anchors, n),
                "n_conditioning": min(self.n_conditioning, n - 1),
            }
        )


def log_priors(candidates: Sequence[tuple[float, float]], n_classes: int) -> list[float]:
    """Logarithms of the prior of candidates (gamma_scale, strength), the first of which is the default."""
    trusted = candidates[0][1] >= STRENGTH
    others = (LOG_PRIOR_WEAK if trusted and strength < STRENGTH else LOG_PRIOR_STRONG for _, strength in candidates[1:])
    return [0.0, *(float(np.log(n_classes)) * other for other in others)]


def graph_weight_error(lam: float, strength: float | str) -> str | None:
    """Error message if the weight of the graphs may overflow, else None."""
    strength = resolve_strength(strength)
    if max(1.0, lam) <= MAX_WEIGHT / max(1.0, strength):
        return None
    return (
        f"lam = {lam:g} and strength = {strength:g} are too large: lam, strength and their product must "
        f"be at most {MAX_WEIGHT:g}. Decrease them."
    )


def resolve_strength(strength: float | str) -> float:
    """Strength as a number; "auto" is the default strength."""
    return STRENGTH if isinstance(strength, str) else float(strength)
