"""`LDSU` for samples on a Dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils.validation import check_is_fitted

import ldsu
from ldsu._utils.fitting import atomic
from ldsu._utils.memory import require_memory
from ldsu._utils.parameters import parameters
from ldsu.dask.blocks import as_floats, column_names, delayed_blocks, is_collection, read_blocks, rows_of_blocks
from ldsu.dask.cluster import Cluster, identity
from ldsu.dask.cluster_problem import ClusterProblem, ClusterStages
from ldsu.dask.sharded_expansion import ShardedExpansion
from ldsu.kernels import check_mask
from ldsu.labels import encode_labels
from ldsu.methods.ldsu import SPARSE_ROWS, graph_weight_error
from ldsu.solvers import unsupported_reason


def computed(y: Any) -> Any:
    """Bring labels to the client."""
    return y.compute() if is_collection(y) else y


@parameters
class LDSU(ldsu.LDSU):
    """`ldsu.LDSU` for samples on a Dask cluster: ``min tr(a^T K (L_w + lam L) K a)`` subject to ``a^T K a = I``.

    Accepts Dask arrays and frames, whose rows are never gathered in one process: neighbors are searched shard by shard,
    each shard builds its part of the sparse system, and the right-hand sides are solved in parallel. The features are
    those that ``ldsu.LDSU(solver="sparse")`` learns on one machine. Arrays on the client are accepted too. Up to 3,000
    rows are fitted on the client.

    Requires a current `distributed.Client` when `fit` is called.

    Parameters
    ----------
    n_components, filter, strength, lam, ...
        Same as in `ldsu.LDSU`; only ``filter="tikhonov"`` and ``kernel="rbf"`` are supported.

    Attributes
    ----------
    feature_map_ : ShardedExpansion
        The model on the cluster; `to_local` brings it to the client.
    replicated_ : bool
        Whether every worker held the whole system (True), or only its part (False).

    See Also
    --------
    ldsu.LDSU : The same on one machine, with every parameter and attribute explained.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from distributed import Client
    >>> from ldsu.dask import LDSU
    >>> with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
    ...     X = da.random.default_rng(0).normal(size=(4000, 5), chunks=(1000, 5))
    ...     y = np.where(np.arange(4000) < 10, np.arange(4000) % 2, -1)
    ...     model = LDSU(min_anchors=20).fit(X, y)
    ...     features = model.transform(X)  # lazy, like X
    ...     local = model.to_local()  # for ldsu.save_model, without a cluster
    >>> features.shape
    (4000, 20)
    """

    @atomic
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the features.

        Parameters
        ----------
        X : dask array or dataframe, or array-like, of shape (n, d)
        y : dask array or series, or array-like, of shape (n,), optional
            Labels; -1, None, NaN or pandas.NA if unlabelled. They are brought to the client.

        Returns
        -------
        self : object
        """
        y = computed(y)
        if not is_collection(X):
            X = to_blocks(X)
        cluster = Cluster(verbose=self.verbose)
        stages = ClusterStages(cluster)
        with stages("read"):
            blocks = read_blocks(X, cluster)
        n, self.n_features_in_ = blocks.shape
        names = column_names(X)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        codes, self.classes_ = encode_labels(y, n)
        settings = self._settings(n)
        if n <= SPARSE_ROWS and self.solver == "auto":
            return self._fit_on_client(blocks[:], y)
        reason = unsupported_reason(blocks, self.kernel, settings)
        if self.kernel != "rbf":
            reason = f"only kernel='rbf' is supported, not {self.kernel!r}"
        if settings.cliques == "kernel" and self.kernel == "rbf":
            reason = "only cliques='input' is supported"
        if settings.filter != "tikhonov":
            reason = f"only filter='tikhonov' is supported, not {settings.filter!r}"
        if self.solver == "exact":
            reason = "solver='exact' needs all samples on one machine"
        if heavy := graph_weight_error(self.lam, self.strength):
            raise ValueError(heavy)
        if self.device != "cpu":
            reason = f"it runs on the CPUs of workers, not on device={self.device!r}"
        if reason:
            raise ValueError(f"Not supported by ldsu.dask.LDSU: {reason}. Use ldsu.LDSU on one machine.")
        X = blocks if n > SPARSE_ROWS else blocks[:]
        problem = ClusterProblem(blocks, X, stages, keep_graphs=self.store_graphs)
        with stages("bandwidth"):
            kernel = self._resolve_kernel(problem, self.gamma_scale)
        kernel = self._choose(problem, codes, kernel)
        self._learn(problem, codes, kernel)
        self.gamma_, self.replicated_, self.timings_ = kernel.gamma, problem.replicated, stages.seconds
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # type: ignore[override]
        """Learn the features, and compute those of the training samples: see `fit` and `transform`."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> Any:
        """Compute the features of new samples.

        Parameters
        ----------
        X : dask array or dataframe, or array-like, of shape (q, d)

        Returns
        -------
        features : dask array (lazy, with the blocks of X) or ndarray, of shape (q, r)
            Same type as X.
        """
        check_is_fitted(self)
        if not is_collection(X):
            return super().transform(X)
        return self.map_blocks(X, identity, self._n_features_out)

    def feature_blocks(self, X: Any, cluster: Cluster) -> list[Any]:
        """Futures of the features of each block of a collection."""
        blocks = cluster.compute("read", as_floats, delayed_blocks(X))
        return self._block_tasks(blocks, rows_of_blocks(X), cluster.submit, "float64")

    def _block_tasks(self, blocks: list[Any], lengths: Sequence[float], task: Callable[..., Any], dtype: str) -> Any:
        """Tasks, by ``task(name, function, *arguments)``, for the features of blocks of rows."""
        sharded = self._sharded()
        if sharded is None:  # few rows, fitted on the client
            return [task("features", self.feature_map_, block) for block in blocks]
        counts = sharded.slices(lengths)
        return [sharded.tasks(block, task, dtype, count) for block, count in zip(blocks, counts, strict=True)]

    def map_blocks(self, X: Any, function: Any, columns: int | None, dtype: Any = None) -> Any:
        """A lazy Dask array of ``function(features of a block)``; one-dimensional if `columns` is None."""
        import dask.array as da

        from dask import delayed

        names = column_names(X)
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(known) != names:
            raise ValueError(f"The columns of X are {names[:5]} ..., but fit was called with {list(known)[:5]} ...")
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, but LDSU is expecting {self.n_features_in_} as input.")
        lengths = rows_of_blocks(X)
        input_dtype = np.dtype(getattr(X, "dtype", np.float64))
        input_dtype = input_dtype if input_dtype in (np.float32, np.float64) else np.dtype(np.float64)

        def task(name: str, call: Any, *arguments: Any) -> Any:
            return delayed(call, pure=False)(*arguments, dask_key_name=f"ldsu-{name}-{uuid.uuid4().hex}")

        samples = [task("read", as_floats, block) for block in delayed_blocks(X)]
        features = self._block_tasks(samples, lengths, task, input_dtype.name)
        width = () if columns is None else (columns,)
        results = [
            da.from_delayed(task("result", function, Z), shape=(length, *width), dtype=dtype or input_dtype)
            for Z, length in zip(features, lengths, strict=True)
        ]
        return da.concatenate(results, axis=0, allow_unknown_chunksizes=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False  # arrays on the client must be dense; blocks of a collection may be sparse
        return tags

    def to_local(self) -> ldsu.LDSU:
        """Convert to a local model, for `ldsu.save_model` and for use without a cluster.

        All training samples and learned coefficients are brought to the client.

        Returns
        -------
        model : ldsu.LDSU
        """
        check_is_fitted(self)
        model = ldsu.LDSU(**self.get_params())
        for name, value in vars(self).items():
            if name.endswith("_") and name not in ("feature_map_", "replicated_"):
                setattr(model, name, value)
        model.feature_map_ = self.feature_map_
        sharded = self._sharded()
        if sharded is not None:
            n = sharded.shards.directory.n
            width = self.n_features_in_ + sum(sharded.coefficients.shape)
            require_memory(
                2 * 8 * n * width,
                f"The model of {n} samples",
                "Use it on the cluster, or fit with fewer anchors (min_anchors) or features (n_components).",
            )
            model.feature_map_ = sharded.to_local()
        return model

    def _sharded(self) -> ShardedExpansion | None:
        return self.feature_map_ if isinstance(self.feature_map_, ShardedExpansion) else None

    def _fit_on_client(self, X: np.ndarray, y: Any) -> Self:
        model = ldsu.LDSU(**self.get_params()).fit(X, y)
        for name, value in vars(model).items():
            if name.endswith("_"):
                setattr(self, name, value)
        self.replicated_ = True
        return self


def to_blocks(X: Any, rows: int = 2**16) -> Any:
    """Split an array on the client into blocks."""
    import dask.array as da
    from sklearn.utils.validation import check_array

    check_mask(X)
    X = check_array(X, accept_sparse=False, dtype=[np.float64, np.float32])
    return da.from_array(X, chunks=(rows, X.shape[1]))
