"""Spectral filters: how much of each direction of the joint spectrum is kept.

A direction of eigenvalue mu of the joint problem is rough on the graphs where mu is large. The filter multiplies its
share of the kernel by f(mu): the filtered kernel is ``K f(M K)``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def tikhonov(mu: np.ndarray, strength: float) -> np.ndarray:
    """``f(mu) = 1 / (1 + strength mu)``: the kernel becomes ``(K^-1 + strength M)^-1``, one linear solve."""
    return 1 / (1 + strength * mu)


def heat(mu: np.ndarray, strength: float) -> np.ndarray:
    """``f(mu) = exp(-strength mu)``: diffusion for a time `strength`."""
    return np.exp(-strength * mu)


SMOOTH_FILTERS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {"tikhonov": tikhonov, "heat": heat}
# "truncate" is the paper's filter: 1 for the r smallest mu, 0 above. It needs no function: the solver keeps r columns.
FILTERS = ("truncate", *SMOOTH_FILTERS)
