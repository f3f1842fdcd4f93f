"""Types of the public interface."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import scipy.sparse
from numpy.typing import ArrayLike, NDArray

MatrixLike: TypeAlias = ArrayLike | scipy.sparse.sparray | scipy.sparse.spmatrix
"""Samples: an array, a data frame or a sparse matrix."""


class Classifier(Protocol):
    """A fitted classifier."""

    classes_: NDArray[Any]

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Predict labels."""
        ...
