"""Spectral filters of the joint problem.

A direction with a large eigenvalue mu is not smooth on the graphs. The filter multiplies its part of the kernel by
f(mu): the filtered kernel is ``K f(M K)``.
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
# "truncate" is the paper's filter: 1 for the r smallest mu, 0 above. Solvers implement it by keeping r columns.
FILTERS = ("truncate", *SMOOTH_FILTERS)
