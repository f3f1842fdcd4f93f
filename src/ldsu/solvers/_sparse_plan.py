"""What the sparse solver supports, in which precision, and how much memory and disk it takes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse
from joblib import effective_n_jobs

from ldsu._utils.arrays import CPU, Arrays
from ldsu._utils.temporary import FileArrays
from ldsu.kernels import INPUT_SPACE_KERNELS
from ldsu.labels import class_counts
from ldsu.neighbors import DIMENSIONS
from ldsu.sample_kernels import PRODUCT_KERNELS, SAMPLE_KERNELS, row_width
from ldsu.solvers._landmarks import MAX_LABELLED, resolve_n_directions, resolve_n_landmarks
from ldsu.solvers._sparse_spectrum import MAX_PAIRS, pairs_memory
from ldsu.solvers._types import Settings
from ldsu.spectrum import resolve_n_components

# A smaller tolerance, or a larger weight of the graphs relative to the kernel, requires double precision.
SINGLE_TOLERANCE, SINGLE_STRENGTH = 1e-5, 1e4
# A smaller nugget does, too: the factor contains the inverse of its square root. Where the residual of a kernel may be
# singular, its rounding errors must be small beside the nugget.
SINGLE_NUGGET, SINGLE_NUGGET_PRODUCTS = 1e-12, 1e-4
# For a larger weight of the graphs relative to the kernel, the tolerance is reduced in proportion.
USUAL_STRENGTH, MIN_TOLERANCE = 1e3, 1e-8
# Labels per class that the weight of the same-class graph assumes, where it is no part of the system.
USUAL_LABELS = 10
# Maximum number of samples to condition on: each row needs a dense system of that size.
MAX_CONDITIONING = 2000
# Numbers of right-hand sides that are solved together if arrays are in files, and the share of the free memory.
FILE_COLUMNS, FILES_SHARE = (32, 28, 24, 20, 16, 12, 8, 4), 0.75


def unsupported_reason(X: Any, kernel_name: Any, settings: Settings) -> str | None:
    """Why the sparse solver does not support a problem, as the end of a sentence; None if it does."""
    if kernel_name not in SAMPLE_KERNELS:
        named = repr(kernel_name) if isinstance(kernel_name, str) else "a function"
        return f"it supports the kernels {', '.join(SAMPLE_KERNELS)}, not {named}"
    if settings.cliques == "input" and kernel_name not in INPUT_SPACE_KERNELS:
        return f"with kernel={kernel_name!r} it only supports cliques='kernel'"
    if settings.filter == "heat":
        return "it supports filter='tikhonov' and 'truncate', not 'heat'"
    if settings.n_conditioning > MAX_CONDITIONING:
        return f"n_conditioning must be at most {MAX_CONDITIONING:,}, not {settings.n_conditioning:,}"
    n = X.shape[0]
    if settings.filter == "truncate" and (r := resolve_n_components(settings.n_components, n)) > MAX_PAIRS:
        return (
            f"with filter='truncate' n_components={settings.n_components} is {r} features of {n} samples, "
            f"but at most {MAX_PAIRS} are supported"
        )
    return None


def working_precision(codes: np.ndarray, settings: Settings, kernel_name: Any = "rbf") -> tuple[str, float]:
    """Single precision, unless tolerance, strength, nugget or eigenvectors require double; and the tolerance.

    That is reduced for strong graphs.
    """
    # Weight of the graphs relative to the kernel, which has diagonal 1.
    weight = settings.strength * max(settings.lam, float(class_counts(codes).max(initial=USUAL_LABELS)))
    if settings.filter == "truncate":
        return "float64", settings.tol
    single = weight <= SINGLE_STRENGTH and settings.nugget >= SINGLE_NUGGET and settings.tol >= SINGLE_TOLERANCE
    if kernel_name in PRODUCT_KERNELS:  # with absolute scaling the weight is in units of their diagonal
        single = single and settings.nugget >= SINGLE_NUGGET_PRODUCTS and settings.scaling == "relative"
    tol = max(settings.tol / max(1.0, weight / USUAL_STRENGTH), min(settings.tol, MIN_TOLERANCE))
    return "float32" if single else "float64", tol


def sparse_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Peak memory of the sparse solver in bytes, without X and its copy."""
    n = X.shape[0]
    itemsize, landmarks, _, anchors = _widths(n, codes, settings)
    # Of sparse samples a second copy while they are sorted, and the components of their cells.
    samples = 2 * row_width(X) * (itemsize + 8) + 8 * 64 if scipy.sparse.issparse(X) else itemsize * X.shape[1]
    solving = 8 * CPU.columns * (os.cpu_count() or 1)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    graph = 2 * 16 * listed + 4 * 24 * (settings.n_conditioning + 1) + 3 * 24 * settings.clique_size**2
    pairs = pairs_memory(n, landmarks, settings) if settings.filter == "truncate" else 0
    return n * (samples + itemsize * (solving + 3 * landmarks + 3 * anchors) + graph) + pairs + 2**29


def device_memory(X: Any, codes: np.ndarray, settings: Settings, arrays: Arrays) -> int:
    """Peak memory of the sparse solver on a device, in bytes."""
    n, s, k = X.shape[0], settings.n_conditioning + 1, settings.clique_size
    itemsize, landmarks, _, anchors = _widths(n, codes, settings)
    samples = 0 if scipy.sparse.issparse(X) else 2 * itemsize * X.shape[1]  # with a centered copy
    # Six arrays of the right-hand sides that are solved together, then Z, P, MP and H.
    solving = itemsize * (6 * min(anchors + landmarks, arrays.columns) + anchors + 3 * landmarks)
    # Neighbors; triplets of the factor and of the graph, twice while they are sorted, and both as matrices.
    graph = 8 * max(2 * settings.n_conditioning, k - 1) + (2 * (16 + itemsize) + 2 * (4 + itemsize)) * (s + k**2)
    pairs = pairs_memory(n, landmarks, settings) if settings.filter == "truncate" else 0
    # A block of rows has up to four times its size in temporary arrays.
    return n * (samples + solving + graph) + pairs + 5 * min(arrays.block_bytes, 3 * itemsize * n**2)


def memory_with_files(X: Any, codes: np.ndarray, settings: Settings, columns: int) -> int:
    """Peak memory of the sparse solver with `FileArrays` of so many columns, in bytes, without files and X."""
    n, s, k = X.shape[0], settings.n_conditioning + 1, settings.clique_size
    itemsize = np.dtype(working_precision(codes, settings)[0]).itemsize
    # The triplets of the factor and of the system between aggregates while the system is built; then the system with
    # its aggregates, and seven arrays of each right-hand side.
    build = (60 + 2 * itemsize) * s + 28 * k**2
    solve = (4 + itemsize) * (2 * s + k**2 + 5) + 7 * itemsize * columns * effective_n_jobs(CPU.n_jobs)
    return n * (130 + max(build, solve)) + 2**29


def disk_with_files(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Temporary files of the sparse solver with `FileArrays`, and of the features of training samples, in bytes."""
    n, d = X.shape
    itemsize, landmarks, _, anchors = _widths(n, codes, settings)
    listed = max(2 * settings.n_conditioning, settings.clique_size - 1)
    row = itemsize * (d + 3 * landmarks) + 4 * listed + 8 * settings.clique_size**2 + X.dtype.itemsize * anchors
    return n * row + model_memory(X, codes, settings)


def model_memory(X: Any, codes: np.ndarray, settings: Settings) -> int:
    """Bytes of the samples, their landmark features and the local part, which the features of new rows are made of."""
    n, d = X.shape
    itemsize, _, drawn, anchors = _widths(n, codes, settings)
    return n * (itemsize * (d + drawn + anchors) + 4 * max(d, DIMENSIONS))


def _widths(n: int, codes: np.ndarray, settings: Settings) -> tuple[int, int, int, int]:
    """Bytes of a number, and numbers of landmark features, of those that do not depend on labels, and of anchors."""
    m, directions = min(int(np.sum(codes >= 0)), MAX_LABELLED), resolve_n_directions(n)
    drawn = min(resolve_n_landmarks(settings.n_landmarks, n), directions)
    itemsize = np.dtype(working_precision(codes, settings)[0]).itemsize
    return itemsize, drawn + min(m, directions), drawn, max(m, settings.min_anchors)


def arrays_in_files(X: Any, codes: np.ndarray, settings: Settings, available: int) -> FileArrays | None:
    """Arrays in files, for samples that do not fit into `available` bytes of memory otherwise; None if unsupported.

    As many right-hand sides are solved together as fit into a share of the memory: the system keeps in the rest of it
    what is in use of the files.
    """
    if scipy.sparse.issparse(X) or settings.filter != "tikhonov" or settings.device != "cpu":
        return None
    fitting = (c for c in FILE_COLUMNS if memory_with_files(X, codes, settings, c) <= FILES_SHARE * available)
    return FileArrays(next(fitting, FILE_COLUMNS[-1]))
